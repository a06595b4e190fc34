/* The kernels that decode crops of tiled JPEGs: a C compiler, nvcc with `-x cu`, and NVRTC compile them. */

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
