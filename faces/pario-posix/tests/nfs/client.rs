//! An export of a partition in this process, and users that call it. The client's futures never wait: its connection blocks.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nfs3_client::io::{AsyncRead, AsyncWrite};
use nfs3_client::nfs3_types::mount::dirpath;
use nfs3_client::nfs3_types::nfs3::{
    CREATE3args, GETATTR3args, LOOKUP3args, MKDIR3args, Nfs3Option, Nfs3Result, READ3args, WRITE3args,
    createhow3, diropargs3, fattr3, filename3, nfs_fh3, nfsstat3, sattr3, stable_how,
};
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::{MountClient, Nfs3Client};
use pario::Partition;
use pario_posix::{Export, ExportOptions};

/// A reply later than this fails the test.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// A connection that blocks.
pub(crate) struct BlockingStream(TcpStream);

impl BlockingStream {
    pub(crate) fn new(address: SocketAddr) -> BlockingStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(REPLY_LIMIT)).unwrap();
        BlockingStream(stream)
    }
}

impl AsyncRead for BlockingStream {
    async fn async_read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self.0.read(target)? {
            0 if !target.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

impl AsyncWrite for BlockingStream {
    async fn async_write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.write(data)
    }
}

/// The value of a future that does not wait.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a blocking connection never waits"),
    }
}

/// A partition and its export.
pub(crate) struct ExportedPartition {
    pub(crate) export: Export,
    pub(crate) partition: Partition,
}

pub(crate) fn options() -> ExportOptions {
    ExportOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        allow: Vec::new(),
        read_only: false,
        root_squash: false,
    }
}

impl ExportedPartition {
    pub(crate) fn new() -> ExportedPartition {
        ExportedPartition::with(options())
    }

    pub(crate) fn with(options: ExportOptions) -> ExportedPartition {
        let partition = Partition::in_process(2).unwrap();
        let export = Export::new(&partition, options).unwrap();
        ExportedPartition { export, partition }
    }

    pub(crate) fn root(&self) -> NfsUser {
        self.user(0, 0, &[])
    }

    pub(crate) fn user(&self, uid: u32, gid: u32, groups: &[u32]) -> NfsUser {
        NfsUser::new(self.export.address(), uid, gid, groups)
    }
}

/// A user with a connection of its own.
pub(crate) struct NfsUser {
    pub(crate) nfs: Nfs3Client<BlockingStream>,
    pub(crate) root: nfs_fh3,
}

pub(crate) fn credential(uid: u32, gid: u32, groups: &[u32]) -> opaque_auth<'static> {
    opaque_auth::auth_unix(&auth_unix {
        stamp: 1,
        machinename: Opaque::borrowed(b"test"),
        uid,
        gid,
        gids: groups.to_vec(),
    })
}

impl NfsUser {
    pub(crate) fn new(address: SocketAddr, uid: u32, gid: u32, groups: &[u32]) -> NfsUser {
        let who = || credential(uid, gid, groups);
        let mut mount =
            MountClient::new_with_auth(BlockingStream::new(address), who(), opaque_auth::default());
        let mounted = now(mount.mnt(dirpath(Opaque::borrowed(b"/")))).unwrap();
        let root = nfs_fh3 { data: Opaque::owned(mounted.fhandle.0.to_vec()) };
        let nfs = Nfs3Client::new_with_auth(BlockingStream::new(address), who(), opaque_auth::default());
        NfsUser { nfs, root }
    }

    pub(crate) fn attributes(&mut self, file: &nfs_fh3) -> Result<fattr3, nfsstat3> {
        let got = now(self.nfs.getattr(&GETATTR3args { object: file.clone() })).unwrap();
        plain(got).map(|got| got.obj_attributes)
    }

    pub(crate) fn lookup(&mut self, dir: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
        plain(now(self.nfs.lookup(&LOOKUP3args { what: place(dir, name) })).unwrap())
            .map(|found| found.object)
    }

    /// Creates a file that must not exist.
    pub(crate) fn create(&mut self, name: &str, mode: u32) -> Result<nfs_fh3, nfsstat3> {
        let root = self.root.clone();
        self.create_in(&root, name, mode)
    }

    pub(crate) fn create_in(&mut self, dir: &nfs_fh3, name: &str, mode: u32) -> Result<nfs_fh3, nfsstat3> {
        let how = createhow3::GUARDED(with_mode(mode));
        let created = now(self.nfs.create(&CREATE3args { where_: place(dir, name), how })).unwrap();
        plain(created).map(|created| created.obj.unwrap())
    }

    pub(crate) fn make_dir(&mut self, name: &str, mode: u32) -> Result<nfs_fh3, nfsstat3> {
        let args = MKDIR3args { where_: place(&self.root, name), attributes: with_mode(mode) };
        plain(now(self.nfs.mkdir(&args)).unwrap()).map(|made| made.obj.unwrap())
    }

    pub(crate) fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<[u8; 8], nfsstat3> {
        let args = WRITE3args {
            file: file.clone(),
            offset,
            count: u32::try_from(data.len()).unwrap(),
            stable,
            data: Opaque::borrowed(data),
        };
        let written = plain(now(self.nfs.write(&args)).unwrap())?;
        assert_eq!(written.count, args.count);
        assert_eq!(written.committed == stable_how::UNSTABLE, stable == stable_how::UNSTABLE);
        Ok(written.verf.0)
    }

    pub(crate) fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), nfsstat3> {
        let args = READ3args { file: file.clone(), offset, count };
        let read = plain(now(self.nfs.read(&args)).unwrap())?;
        assert_eq!(usize::try_from(read.count).unwrap(), read.data.len());
        Ok((read.data.to_vec(), read.eof))
    }
}

/// The result without what a failure carries.
pub(crate) fn plain<T, E>(result: Nfs3Result<T, E>) -> Result<T, nfsstat3> {
    match result {
        Nfs3Result::Ok(value) => Ok(value),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

pub(crate) fn place<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3(Opaque::borrowed(name.as_bytes())) }
}

pub(crate) fn with_mode(mode: u32) -> sattr3 {
    sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() }
}

/// A handle of no inode.
pub(crate) fn stale(root: &nfs_fh3) -> nfs_fh3 {
    let mut bytes = root.data.to_vec();
    let length = bytes.len();
    bytes[length - 8..].copy_from_slice(&(u64::MAX >> 1).to_be_bytes());
    nfs_fh3 { data: Opaque::owned(bytes) }
}
