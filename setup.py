"""Builds the same sdist each time. All else is in pyproject.toml.

With SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/) two builds of a commit are the same
bytes, if the umask is the same. setuptools heeds it for wheels alone.
"""

from __future__ import annotations

import gzip
import os
import tarfile

from setuptools import setup
from setuptools.command.sdist import sdist


class SameSdist(sdist):
    """The usual sdist; with SOURCE_DATE_EPOCH without what depends on the time and the user of the build."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):  # type: ignore[no-untyped-def]
        """Write the archive and return its path; the arguments are those of `shutil.make_archive`."""
        if format != "gztar" or "SOURCE_DATE_EPOCH" not in os.environ:
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)
        epoch, path = int(os.environ["SOURCE_DATE_EPOCH"]), f"{base_name}.tar.gz"

        def same(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.mode = epoch, 0o755 if member.mode & 0o100 else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(base_dir, filter=same)  # folders are added in the order of their names
        return path


if __name__ == "__main__":
    setup(cmdclass={"sdist": SameSdist})
