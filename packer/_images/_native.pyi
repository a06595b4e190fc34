COMPILED_VECTORS: str
OPERATION_FIELDS: str
RULE_FIELDS: str
STEP_FIELDS: str
SURVEY_FIELDS: str
TASK_FIELDS: str
VECTORS: str

def annotate(data: bytes, /) -> bytes | None: ...
def augment(pixels: int, height: int, width: int, operations: int, count: int, /) -> None: ...
def choose(
    steps: int,
    step_count: int,
    heights: int,
    widths: int,
    count: int,
    numbers: int,
    stride: int,
    chosen: bool,
    out: int,
    /,
) -> bool: ...
def choose_drawn(
    steps: int,
    step_count: int,
    heights: int,
    widths: int,
    count: int,
    numbers: int,
    length: int,
    done: int,
    out: int,
) -> bool: ...
def decide(
    rules: int,
    rule_count: int,
    height: int,
    width: int,
    count: int,
    numbers: int,
    stride: int,
    out: int,
    /,
) -> None: ...
def cut_out(
    data: bytes, height: int, width: int, top: int, left: int, tall: int, wide: int, /
) -> tuple[bytes | bytearray, tuple[int, int, int, int]] | None: ...
def first_rows(data: bytes, height: int, width: int, bottom: int, /) -> tuple[bytes | bytearray, int] | None: ...
def encode_jpeg(pixels: int, height: int, width: int, stride: int, quality: int, interval: int, /) -> bytes: ...
def decode_grey(data: bytes, height: int, width: int, out: int, /) -> bool: ...
def decode_into(
    tasks: int, count: int, operations: int, each: int, table: int, constants: int, type: int, planes: bool, /
) -> list[int]: ...
def locate(
    table: int,
    rows: int,
    count: int,
    views: int,
    crops: int,
    each: int,
    batch: int,
    step: int,
    file: int,
    begin: int,
    bytes: int,
    tasks: int,
    operations: int,
    places: int,
    sums: int,
    /,
) -> None: ...
def aim(tasks: int, count: int, views: int, places: int, first: int, results: int, /) -> bool: ...
def crc32c(data: bytes, crc: int, /) -> int: ...
def move(pixels: int, height: int, width: int, item: int, matrix: int, fill: int, out: int, /) -> None: ...
def mix_labels(labels: int, count: int, classes: int, shares: int, out: int, /) -> bool: ...
def look_up(pixels: int, count: int, table: int, out: int, planes: bool, images: int, /) -> None: ...
def resize(
    pixels: int,
    stride: int,
    rows: int,
    columns: int,
    tall: int,
    wide: int,
    scaled_height: int,
    scaled_width: int,
    cut_top: int,
    cut_left: int,
    out_height: int,
    out_width: int,
    flip: bool,
    interpolation: int,
    out: int,
    /,
) -> bool: ...
def inflate(data: bytes, out: int, size: int, whole: bool, /) -> bool: ...
def png_samples(
    compressed: bytes,
    height: int,
    width: int,
    depth: int,
    colour: int,
    interlaced: int,
    first: int,
    end: int,
    out: int,
    /,
) -> bool: ...
def gather(
    pixels: int,
    stride: int,
    item: int,
    rows: int,
    columns: int,
    height: int,
    width: int,
    fill: int,
    out: int,
    /,
) -> None: ...
def survey(records: int, count: int, /) -> None: ...
def transcode(
    data: bytes, most_pixels: int, least_tile: int, /
) -> tuple[bytes, bytes, int, bytes, bytes, int] | str: ...
def uniforms(seed: int, epoch: int, indices: int, count: int, randoms: int, out: int, /) -> None: ...
def write_numbers(
    pixels: int,
    count: int,
    begin: int,
    end: int,
    height: int,
    width: int,
    out: int,
    type: int,
    planes: bool,
    constants: int,
    mixture: int,
    top: int,
    left: int,
    bottom: int,
    right: int,
    /,
) -> None: ...
