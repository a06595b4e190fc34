"""The options that say which annotations images have: COCO's, Pascal VOC's or YOLO's."""

from __future__ import annotations

import click

from packer._cli.values import UserPath

__all__ = ["ANNOTATIONS"]

ANNOTATIONS = (
    click.option(
        "--coco",
        type=UserPath(),
        multiple=True,
        metavar="FILE.json",
        help="Take images and fields from annotations in COCO's format: boxes, categories, segmentations, keypoints, captions. SRC is the directory that file_name counts from. Several files of the same images are joined.",
    ),
    click.option(
        "--masks",
        is_flag=True,
        help="Draw the annotations of --coco into the field `mask`, as ids of categories: crowds below others, smaller ones on top.",
    ),
    click.option(
        "--voc",
        type=UserPath(),
        metavar="DIR",
        help="Take fields from Annotations/*.xml and SegmentationClass in DIR, such as VOCdevkit/VOC2012; SRC is DIR or its JPEGImages. --split names a list in ImageSets.",
    ),
    click.option(
        "--yolo",
        type=UserPath(),
        metavar="DATA.yaml",
        help="Take fields from the files in labels beside images; SRC is the directory of images. --split names a split of DATA.yaml.",
    ),
)
"""Decorators of a command."""
