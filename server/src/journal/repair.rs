//! Cutting off a torn tail.

use super::{DIR, Disk, End, Error, Scan, segment_path};

/// Bytes that are moved at once.
const CHUNK: u64 = 1 << 20;

/// Cuts off the torn tail that a scan found, if it found one, and makes what stands before it
/// durable. The bytes are kept in a `.broken` file beside the segment where there is room.
///
/// Afterwards the scan is clean. Repairing twice is the same as once.
pub fn repair(disk: &dyn Disk, scan: &mut Scan) -> Result<(), Error> {
    if let End::Torn { segment, offset, bytes } = scan.end {
        let path = segment_path(segment);
        let failed = || Error::io(format!("repairing {path}"));
        let file = disk.open(&path).map_err(failed())?;
        match keep(disk, &*file, segment, offset, bytes) {
            Ok(()) | Err(Error::Full) => {}
            Err(error) => return Err(error),
        }
        let zeros = vec![0; CHUNK as usize];
        let mut at = offset;
        while at < offset + bytes {
            let length = (offset + bytes - at).min(CHUNK);
            file.write_at(&zeros[..length as usize], at).map_err(failed())?;
            at += length;
        }
        file.sync().map_err(failed())?;
        scan.end = End::Clean;
    }
    if let Some(number) = scan.last_segment {
        // A process that died may have left records that never reached the disk. They were not
        // acknowledged, but from now on they are the truth.
        let path = segment_path(number);
        let file = disk.open(&path).map_err(Error::io(format!("opening {path}")))?;
        file.sync().map_err(Error::io(format!("syncing {path}")))?;
    }
    Ok(())
}

fn keep(
    disk: &dyn Disk,
    file: &dyn super::DiskFile,
    segment: u64,
    offset: u64,
    bytes: u64,
) -> Result<(), Error> {
    let path = format!("{DIR}/{segment:08}.{offset}.broken");
    let failed = || Error::io(format!("writing {path}"));
    let kept = disk.create(&path).map_err(failed())?;
    let mut chunk = vec![0; CHUNK.min(bytes) as usize];
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(chunk.len() as u64) as usize;
        let read = file.read_at(&mut chunk[..length], offset + at).map_err(failed())?;
        if read == 0 {
            break;
        }
        if let Err(error) = kept.write_at(&chunk[..read], at) {
            let _ = disk.remove(&path);
            return Err(failed()(error));
        }
        at += read as u64;
    }
    kept.sync().map_err(failed())?;
    disk.sync_dir(DIR).map_err(failed())
}
