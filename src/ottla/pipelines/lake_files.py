"""Files wherever Spark has them: local, HDFS, object stores (Hadoop's FileSystem, through the driver's JVM)."""

from __future__ import annotations

import posixpath
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class File:
    """One that was listed; size in bytes."""

    path: str
    size: int


class Files:
    """Below a root. Whatever the file system fails with is a Py4JJavaError."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark._jvm
        self._system = self._path(root).getFileSystem(spark._jsc.hadoopConfiguration())
        self.root = str(self._system.makeQualified(self._path(root)).toString())

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if it does not exist."""
        if not self.exists(path):
            return []
        return sorted(str(each.getPath().getName()) for each in self._system.listStatus(self._path(path)))

    def below(self, path: str, suffix: str = ".parquet") -> list[File]:
        """Files in a directory and all below it, but hidden ones, sorted."""
        if not self.exists(path):
            return []
        found, each = [], self._system.listFiles(self._path(path), True)
        while each.hasNext():
            status = each.next()
            file = File(str(status.getPath().toString()), int(status.getLen()))
            if file.path.endswith(suffix) and not posixpath.basename(file.path).startswith(("_", ".")):
                found.append(file)
        return sorted(found, key=lambda file: file.path)

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def delete(self, path: str) -> None:
        """Delete a path with everything in it; it may be gone already."""
        self._system.delete(self._path(path), True)

    def move(self, path: str, target: str) -> None:
        """Make directories as needed. Raises FileExistsError, OSError."""
        if self.exists(target):
            raise FileExistsError(target)
        self._system.mkdirs(self._path(posixpath.dirname(target)))
        if not self._system.rename(self._path(path), self._path(target)):
            raise OSError(f"{path} cannot be renamed to {target}")

    def read(self, path: str) -> str:
        with closing(self._system.open(self._path(path))) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def create(self, path: str, text: str) -> None:
        """There in whole or not at all. Raises FileExistsError, OSError."""
        draft = f"{path}.draft"
        with closing(self._system.create(self._path(draft), True)) as stream:
            stream.write(bytearray(text.encode()))
        self.move(draft, path)
