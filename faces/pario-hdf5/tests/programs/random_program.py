"""A random HDF5 program: the same seed does the same on every connector. Prints one line per result.

usage: random_program.py SEED FILE STEPS
"""
import hashlib
import sys

import h5py
import numpy as np

DTYPES = [
    "i1", "u2", "<i4", ">i4", "<i8", "u8", "<f4", ">f8", "f2", "S5", "?", "c16",
    h5py.string_dtype(), h5py.string_dtype("ascii"), h5py.string_dtype("utf-8", 7),
    np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S3")]),
    np.dtype([("n", "i2"), ("s", h5py.string_dtype())]),
    np.dtype([("v", "f4", (3,)), ("w", "u1")]),
    h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 42}, basetype="i2"),
    h5py.vlen_dtype("i4"), np.dtype("V6"), h5py.ref_dtype,
]


def digest(value):
    """A text that is equal for equal values."""
    if isinstance(value, h5py.Empty):
        return "empty " + str(value.dtype)
    if isinstance(value, (h5py.Reference, h5py.RegionReference)):
        return "reference " + str(bool(value))
    if isinstance(value, (np.void, np.ndarray)) and value.dtype.names:
        value = np.asarray(value)
        return "{" + ",".join(n + "=" + digest(value[n]) for n in value.dtype.names) + "}"
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return str(value.shape) + "[" + ",".join(digest(one) for one in value.flat) + "]"
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}" + hashlib.md5(np.ascontiguousarray(value).tobytes()).hexdigest()[:12]
    return repr(value)


class Program:
    def __init__(self, seed, path):
        self.rng = np.random.default_rng(seed)
        self.path = path
        self.file = h5py.File(path, "w")
        self.count = 0

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def data(self, dtype, shape):
        """Random elements."""
        dtype = np.dtype(dtype)
        rng = self.rng
        n = int(np.prod(shape, dtype=int))
        if h5py.check_ref_dtype(dtype):
            out = np.empty(n, dtype=dtype)
            names = [k for k in self.file]
            for i in range(n):
                out[i] = self.file[self.pick(names)].ref if names else h5py.Reference()
            return out.reshape(shape)
        if h5py.check_vlen_dtype(dtype) is not None:
            out = np.empty(n, dtype=object)
            for i in range(n):
                out[i] = rng.integers(-99, 99, size=int(rng.integers(0, 5))).astype("i4")
            return out.reshape(shape)
        info = h5py.check_string_dtype(dtype)
        if info is not None and info.length is None:
            words = ["", "a", "wave", "x" * 50, "ocean 7"] + ([] if info.encoding == "ascii" else ["höhe", "日本"])
            return np.array([self.pick(words) for _ in range(n)], dtype=object).reshape(shape)
        if dtype.names:
            out = np.zeros(n, dtype=dtype)
            for name in dtype.names:
                sub = dtype[name]
                if sub.subdtype:
                    out[name] = self.data(sub.subdtype[0], (n,) + sub.subdtype[1])
                else:
                    out[name] = self.data(sub, (n,))
            return out.reshape(shape)
        if h5py.check_enum_dtype(dtype):
            return np.array([self.pick([0, 1, 42]) for _ in range(n)], dtype=dtype.base).astype(dtype).reshape(shape)
        if dtype.kind == "S":
            return np.array([self.pick([b"", b"ab", b"abcde"]) for _ in range(n)], dtype=dtype).reshape(shape)
        if dtype.kind == "V":
            return np.frombuffer(rng.bytes(n * dtype.itemsize), dtype=dtype).reshape(shape)
        if dtype.kind == "b":
            return rng.integers(0, 2, size=shape).astype(bool)
        if dtype.kind == "c":
            return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
        if dtype.kind == "f":
            return (rng.normal(size=shape) * 100).astype(dtype)
        low = 0 if dtype.kind == "u" else -100
        return rng.integers(low, 100, size=shape).astype(dtype)

    def groups(self):
        found = [self.file]
        self.file.visititems(lambda n, o: found.append(o) if isinstance(o, h5py.Group) else None)
        return found

    def datasets(self):
        found = []
        self.file.visititems(lambda n, o: found.append(o) if isinstance(o, h5py.Dataset) else None)
        return found

    def objects(self):
        return self.groups() + self.datasets()

    def name(self):
        self.count += 1
        return self.pick(["d", "wave ", ".x", "a@b", "höhe", "50%", "n" * 260]) + str(self.count)

    def make_dataset(self):
        dtype = self.pick(DTYPES)
        shape = tuple(int(n) for n in self.rng.integers(0, 9, size=int(self.rng.integers(0, 4))))
        options = {}
        plain = np.dtype(dtype).kind not in "O" and not np.dtype(dtype).hasobject
        if shape and 0 not in shape and self.rng.random() < 0.6:
            options["chunks"] = tuple(int(self.rng.integers(1, n + 1)) for n in shape)
            options["maxshape"] = tuple(self.pick([None, n, n + 5]) for n in shape)
            if self.rng.random() < 0.6:
                options["compression"] = self.pick(["gzip", "lzf", None])
                options["shuffle"] = bool(self.rng.random() < 0.5)
                options["fletcher32"] = bool(plain and self.rng.random() < 0.4)
        if np.dtype(dtype).kind in "iuf" and self.rng.random() < 0.4:
            options["fillvalue"] = 7
        elif h5py.check_string_dtype(np.dtype(dtype)) and self.rng.random() < 0.3:
            options["fillvalue"] = "fill"
        group = self.pick(self.groups())
        # Without this, native HDF5 leaves old bytes of the file where nothing was written.
        dset = group.create_dataset(self.name(), shape=shape, dtype=dtype, fill_time="alloc", **options)
        return digest(dset[()])

    def selection(self, shape):
        """A random selection: slices with steps, lists, a mask."""
        kind = self.rng.random()
        if kind < 0.15 and shape:
            return self.rng.random(shape) < 0.4
        parts, listed = [], False
        for n in shape:
            how = self.rng.random()
            if n == 0 or how < 0.2:
                parts.append(slice(None))
            elif how < 0.35:
                parts.append(int(self.rng.integers(n)))
            elif how < 0.5 and not listed and n > 1:
                listed = True
                parts.append(sorted(set(int(i) for i in self.rng.integers(0, n, size=3))))
            else:
                start = int(self.rng.integers(n))
                parts.append(slice(start, int(self.rng.integers(start, n + 1)), int(self.rng.integers(1, 4))))
        return tuple(parts) if parts else ()

    def write(self):
        dset = self.pick(self.datasets())
        where = self.selection(dset.shape)
        old = dset[where]
        shape = np.shape(old)
        dset[where] = self.data(dset.dtype, shape) if shape else self.data(dset.dtype, (1,))[0]
        return digest(dset[where]) + " of " + digest(dset[()])

    def read(self):
        dset = self.pick(self.datasets())
        return digest(dset[self.selection(dset.shape)])

    def read_field(self):
        found = [d for d in self.datasets() if d.dtype.names]
        dset = self.pick(found)
        name = self.pick(list(dset.dtype.names))
        return digest(dset[name])

    def write_field(self):
        found = [d for d in self.datasets() if d.dtype.names == ("a", "b", "c") and d.size]
        dset = self.pick(found)
        # Native HDF5 leaves old bytes in members that were never written.
        dset[...] = self.data(dset.dtype, dset.shape)
        dset[..., "a"] = self.data("<i4", dset.shape)
        return digest(dset[()])

    def convert(self):
        found = [d for d in self.datasets() if d.dtype.kind in "iu" and d.dtype.metadata is None]
        dset = self.pick(found)
        return digest(dset.astype(self.pick(["f8", "i8", ">i2"]))[()])

    def resize(self):
        found = [d for d in self.datasets() if d.chunks]
        dset = self.pick(found)
        shape = tuple(int(self.rng.integers(0, 12)) for _ in dset.shape)
        dset.resize(shape)
        return digest(dset[()])

    def attribute(self):
        target = self.pick(self.objects())
        dtype = self.pick(DTYPES[:-1])
        shape = tuple(int(n) for n in self.rng.integers(1, 4, size=int(self.rng.integers(0, 3))))
        value = self.data(dtype, shape) if shape else self.data(dtype, (1,))[0]
        name = self.pick(["units", "n", "höhe", "a/b", "x" * 300])
        target.attrs.create(name, value, dtype=dtype, shape=shape)
        return digest(target.attrs[name])

    def attributes(self):
        target = self.pick(self.objects())
        return ";".join(k + "=" + digest(v) for k, v in sorted(target.attrs.items()))

    def remove_attribute(self):
        target = self.pick([o for o in self.objects() if len(o.attrs)])
        del target.attrs[self.pick(sorted(target.attrs))]
        return str(sorted(target.attrs))

    def group(self):
        group = self.pick(self.groups())
        group.create_group(self.name() + "/" + self.name(), track_order=bool(self.rng.random() < 0.3))
        return str(sorted(group))

    def link(self):
        group = self.pick(self.groups())
        kind, target = self.rng.random(), self.pick(self.objects())
        if kind < 0.4 and target.name != "/":
            group[self.name()] = target
        elif kind < 0.8:
            group[self.name()] = h5py.SoftLink(self.pick([target.name, "/nowhere"]))
        else:
            group[self.name()] = h5py.ExternalLink("elsewhere.h5", "/x")
        return str(sorted((k, str(type(group.get(k, getlink=True)).__name__)) for k in group))

    def remove(self):
        group = self.pick([g for g in self.groups() if len(g)])
        del group[self.pick(sorted(group))]
        return str(sorted(group))

    def move(self):
        group = self.pick([g for g in self.groups() if len(g)])
        group.move(self.pick(sorted(group)), self.name())
        return str(sorted(group))

    def copy(self):
        # Native HDF5 fails on some datasets of references.
        source = self.pick([d for d in self.datasets() if not h5py.check_ref_dtype(d.dtype)])
        target = self.pick(self.groups())
        name = self.name()
        self.file.copy(source, target, name=name)
        return digest(target[name][()])

    def region(self):
        dset = self.pick([d for d in self.datasets() if len(d.shape) == 2 and d.size])
        ref = dset.regionref[0:2, 0:1]
        return digest(self.file[ref][ref])

    def reopen(self):
        self.file.close()
        self.file = h5py.File(self.path, "r+")
        return self.everything()

    def everything(self):
        lines = []

        def visit(name, item):
            text = name + " " + type(item).__name__ + " " + str(sorted(item.attrs))
            if isinstance(item, h5py.Dataset):
                text += f" {item.shape} {item.dtype} {item.chunks} {item.maxshape} {item.compression} " + digest(item[()])
            lines.append(text)

        self.file.visititems(visit)
        return hashlib.md5("\n".join(sorted(lines)).encode()).hexdigest() if len(lines) > 40 else "|".join(sorted(lines))

    def run(self, steps):
        actions = (
            [self.make_dataset] * 5 + [self.write] * 8 + [self.read] * 4 + [self.resize] * 3 + [self.attribute] * 3
            + [self.attributes, self.remove_attribute, self.group, self.link, self.link, self.remove, self.move, self.copy,
               self.read_field, self.write_field, self.convert, self.region, self.reopen]
        )
        for step in range(steps):
            action = self.pick(actions)
            try:
                result = action()
            except Exception as error:
                result = "error " + type(error).__name__
            print(f"{step} {action.__name__} {result}")
        print("end " + self.reopen())
        self.file.close()


if __name__ == "__main__":
    Program(int(sys.argv[1]), sys.argv[2]).run(int(sys.argv[3]))
