/* The kernels that decode crops of tiled JPEGs: taken by a C compiler as they are, by nvcc with `-x cu`, and by NVRTC. */

#include "entropy.h"
#include "pixels.h"
#include "samples.h"
#include "tiles.h"
#include "weights.h"

#if !ON_DEVICE
/* The sizes of the structures, which device/batch.py compares with its own. */
const uint32_t structure_sizes[] = {sizeof(Group), sizeof(Component), sizeof(Axis), sizeof(Image), sizeof(Span), sizeof(Chunk),
                                    sizeof(Tables)};
#endif
