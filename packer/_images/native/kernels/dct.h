/* The factors of the inverse DCT. */

#ifndef PACKER_DCT_H
#define PACKER_DCT_H

enum { /* by Loeffler, Ligtenberg and Moschytz, 1989: round(x * 2^13) */
    F_0_298 = 2446, F_0_390 = 3196, F_0_541 = 4433, F_0_765 = 6270, F_0_899 = 7373, F_1_175 = 9633, F_1_501 = 12299,
    F_1_847 = 15137, F_1_961 = 16069, F_2_053 = 16819, F_2_562 = 20995, F_3_072 = 25172,
};

#endif
