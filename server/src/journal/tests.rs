//! The journal on the simulated disk, with a crash at every operation.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const OPTIONS: Options = Options { segment_bytes: 640 };

/// Batches of entries; each entry is so many events and as many bytes as `size`.
type Script = Vec<Vec<(u32, usize)>>;

fn script() -> Script {
    (0..12)
        .map(|batch| (0..batch % 4 + 1).map(|at| (at % 3 + 1, 40 * at as usize + 9)).collect())
        .collect()
}

fn bytes_of(sequence: u64, size: usize) -> Vec<u8> {
    (0..size).map(|at| (sequence as usize * 31 + at) as u8).collect()
}

#[derive(Debug, Clone, PartialEq)]
struct Item {
    sequence: u64,
    events: u32,
    bytes: Vec<u8>,
}

fn items(script: &Script, mut sequence: u64) -> Vec<Vec<Item>> {
    let mut all = Vec::new();
    for batch in script {
        let mut items = Vec::new();
        for (events, size) in batch {
            items.push(Item { sequence, events: *events, bytes: bytes_of(sequence, *size) });
            sequence += u64::from(*events);
        }
        all.push(items);
    }
    all
}

fn open(disk: &SimDisk) -> Result<(Writer, Vec<Item>), Error> {
    disk.create_dir(DIR).map_err(Error::io("creating the journal"))?;
    disk.sync_dir("").map_err(Error::io("syncing the home"))?;
    let mut found = Vec::new();
    let mut scanned = scan::<Error>(disk, 0, |entry| {
        let (sequence, events) = (entry.sequence, entry.events);
        found.push(Item { sequence, events, bytes: entry.bytes.to_vec() });
        Ok(())
    })?;
    repair(disk, &mut scanned)?;
    let writer = Writer::open(Arc::new(disk.clone()), OPTIONS, &scanned)?;
    Ok((writer, found))
}

/// Appends batches until something fails; returns how many were acknowledged.
fn append(writer: &mut Writer, batches: &[Vec<Item>]) -> (usize, Option<Error>) {
    for (done, batch) in batches.iter().enumerate() {
        let mut pending = Pending::default();
        for item in batch {
            assert!(pending.push(item.sequence, &item.bytes, item.events));
        }
        while let Some(plan) = writer.needs(&pending) {
            match plan.prepare() {
                Ok(prepared) => writer.adopt(prepared),
                Err(error) => return (done, Some(error)),
            }
        }
        if let Err(error) = writer.commit(&mut pending) {
            return (done, Some(error));
        }
    }
    (batches.len(), None)
}

/// What a crashed journal comes back with is a prefix in whole batches, with all that was
/// acknowledged.
fn check(found: &[Item], batches: &[Vec<Item>], acknowledged: usize) {
    let whole: Vec<usize> = (0..=batches.len())
        .filter(|count| batches[..*count].iter().flatten().eq(found.iter()))
        .collect();
    assert_eq!(whole.len(), 1, "not a prefix of whole batches: {} entries", found.len());
    assert!(whole[0] >= acknowledged, "{} of {acknowledged} acknowledged", whole[0]);
}

fn operations_of(run: impl Fn(&SimDisk)) -> u64 {
    let disk = SimDisk::new(0);
    run(&disk);
    disk.operations()
}

fn write_all(disk: &SimDisk, batches: &[Vec<Item>]) -> usize {
    match open(disk) {
        Ok((mut writer, _)) => append(&mut writer, batches).0,
        Err(_) => 0,
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let batches = items(&script(), 1);
    let operations = operations_of(|disk| {
        write_all(disk, &batches);
    });
    for operation in 1..=operations {
        for seed in 0..8 {
            for crash in [Crash::Power, Crash::Process] {
                let disk = SimDisk::new(seed * 1000 + operation);
                disk.set_fault(operation, Fault::Stop);
                let acknowledged = write_all(&disk, &batches);
                disk.crash(crash);
                let (mut writer, found) = open(&disk).unwrap();
                check(&found, &batches, acknowledged);

                // It goes on where it was.
                let next = writer.next_sequence();
                let more = items(&script(), next);
                assert_eq!(append(&mut writer, &more).0, more.len());
                drop(writer);
                let (_, all) = open(&disk).unwrap();
                assert_eq!(all.len(), found.len() + more.iter().flatten().count());
            }
        }
    }
}

/// As [`append`], with a segment prepared ahead of each batch.
fn append_ahead(disk: &SimDisk, batches: &[Vec<Item>]) -> usize {
    let Ok((mut writer, _)) = open(disk) else { return 0 };
    for (done, batch) in batches.iter().enumerate() {
        match writer.plan().map(|plan| plan.prepare()) {
            Some(Ok(prepared)) => writer.adopt(prepared),
            Some(Err(_)) => return done,
            None => {}
        }
        if append(&mut writer, std::slice::from_ref(batch)).0 == 0 {
            return done;
        }
    }
    batches.len()
}

#[test]
fn a_record_larger_than_the_segment_prepared_for_it_leaves_no_gap() {
    let sizes = [10, 900, 10, 2000, 500, 3000, 10];
    let batches = items(&sizes.iter().map(|size| vec![(1, *size)]).collect(), 1);
    let operations = operations_of(|disk| {
        append_ahead(disk, &batches);
    });
    for operation in 1..=operations + 1 {
        for crash in [Crash::Power, Crash::Process] {
            let disk = SimDisk::new(operation);
            disk.set_fault(operation, Fault::Stop);
            let acknowledged = append_ahead(&disk, &batches);
            disk.crash(crash);
            let (_, found) = open(&disk).unwrap();
            check(&found, &batches, acknowledged);
        }
    }
    let disk = SimDisk::new(0);
    append_ahead(&disk, &batches);
    let last = *segments(&disk).unwrap().last().unwrap();
    delete_segments(&disk, last, 7).unwrap();
    assert!(segments(&disk).unwrap().len() <= 2, "those before the last record go");
}

#[test]
fn a_crash_during_recovery_is_recoverable_and_recovery_repeats_itself() {
    let batches = items(&script(), 1);
    let operations = operations_of(|disk| {
        write_all(disk, &batches);
    });
    for operation in (1..=operations).step_by(3) {
        let disk = SimDisk::new(operation);
        disk.set_fault(operation, Fault::Stop);
        let acknowledged = write_all(&disk, &batches);
        disk.crash(Crash::Power);
        let recovery = {
            let copy = disk.fork();
            let before = copy.operations();
            open(&copy).unwrap();
            copy.operations() - before
        };
        for at in 1..=recovery {
            let copy = disk.fork();
            copy.set_fault(copy.operations() + at, Fault::Stop);
            assert!(open(&copy).is_err());
            copy.crash(Crash::Power);
            let (_, found) = open(&copy).unwrap();
            check(&found, &batches, acknowledged);
            let once = copy.contents();
            open(&copy).unwrap();
            assert_eq!(copy.contents(), once, "recovering twice changes nothing more");
        }
    }
}

#[test]
fn a_failed_sync_is_final() {
    let batches = items(&script(), 1);
    let disk = SimDisk::new(3);
    let (mut writer, _) = open(&disk).unwrap();
    assert_eq!(append(&mut writer, &batches[..4]).0, 4);
    // The next operations are the write and the sync of a commit.
    disk.set_fault(disk.operations() + 2, Fault::Eio);
    let (acknowledged, error) = append(&mut writer, &batches[4..]);
    assert_eq!(acknowledged, 0);
    assert!(matches!(error, Some(Error::Io { .. })), "{error:?}");
    disk.crash(Crash::Power);
    let (_, found) = open(&disk).unwrap();
    check(&found, &batches, 4);
}

#[test]
fn a_full_disk_loses_nothing_and_needs_no_restart() {
    let batches = items(&script(), 1);
    let disk = SimDisk::new(4);
    disk.set_capacity(Some(3 * OPTIONS.segment_bytes));
    let (mut writer, _) = open(&disk).unwrap();
    let many: Vec<Vec<Item>> = items(&[script(), script(), script()].concat(), 1);
    let (acknowledged, error) = append(&mut writer, &many);
    assert!(matches!(error, Some(Error::Full)), "{error:?}");
    assert!(acknowledged > batches.len() / 2);
    let segments = disk.contents().keys().filter(|path| path.ends_with(".wal")).count();
    assert_eq!(segments, 3, "a segment that could not be prepared leaves nothing behind");

    disk.set_capacity(None);
    let (more, error) = append(&mut writer, &many[acknowledged..]);
    assert!(error.is_none());
    assert_eq!(acknowledged + more, many.len());
    disk.crash(Crash::Power);
    let (_, found) = open(&disk).unwrap();
    check(&found, &many, many.len());
}

#[test]
fn every_flipped_bit_before_the_last_record_is_refused() {
    let batches = items(&script(), 1);
    let disk = SimDisk::new(5);
    let (mut writer, _) = open(&disk).unwrap();
    append(&mut writer, &batches);
    let last = segment_path(writer.segment());
    let last_record = batches.last().unwrap().iter().map(|item| item.bytes.len() + frame::ENTRY);
    let last_record = last_record.sum::<usize>() + frame::RECORD;
    for (path, bytes) in disk.contents() {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        let tail = if path == last { used.saturating_sub(last_record) } else { used };
        for bit in 0..tail as u64 * 8 {
            if (28 * 8..32 * 8).contains(&bit) {
                continue; // reserved bytes of the header, not covered
            }
            let copy = disk.fork();
            copy.flip_bit(&path, bit).unwrap();
            match open(&copy) {
                Err(Error::Corrupt { file, .. }) => assert_eq!(file, path),
                Err(Error::Version { .. }) => {}
                other => panic!("bit {bit} of {path}: {:?}", other.map(|(_, found)| found.len())),
            }
        }
    }
}

#[test]
fn a_missing_segment_is_refused() {
    let batches = items(&script(), 1);
    let disk = SimDisk::new(6);
    let (mut writer, _) = open(&disk).unwrap();
    append(&mut writer, &batches);
    assert!(writer.segment() > 2);
    disk.remove(&segment_path(2)).unwrap();
    match open(&disk) {
        Err(Error::Corrupt { file, .. }) => assert_eq!(file, segment_path(2)),
        other => panic!("{:?}", other.map(|(_, found)| found.len())),
    }
    disk.remove(&segment_path(1)).unwrap();
    assert!(matches!(open(&disk), Err(Error::Corrupt { .. })));
}

#[test]
fn segments_below_a_checkpoint_can_go() {
    let batches = items(&script(), 1);
    let disk = SimDisk::new(7);
    let (mut writer, _) = open(&disk).unwrap();
    append(&mut writer, &batches);
    let through = batches[8].last().unwrap().sequence;
    let deleted = delete_segments(&disk, writer.segment(), through).unwrap();
    assert!(deleted > 0);
    let mut first = None;
    let scanned = scan::<Error>(&disk, through, |entry| {
        first.get_or_insert(entry.sequence);
        Ok(())
    })
    .unwrap();
    assert!(first.unwrap() > through && scanned.next_sequence == writer.next_sequence());
    assert!(matches!(scan::<Error>(&disk, 0, |_| Ok(())), Err(Error::Corrupt { .. })));
}

#[test]
fn a_checkpoint_is_old_or_new_after_a_crash_at_any_operation() {
    let bodies = [vec![b'a'; 3000], vec![b'b'; 5000]];
    for operation in 1..=12 {
        for seed in 0..16 {
            let disk = SimDisk::new(seed);
            checkpoint::write(&disk, 1, &bodies[0]).unwrap();
            disk.set_fault(disk.operations() + operation, Fault::Stop);
            let written = checkpoint::write(&disk, 2, &bodies[1]).is_ok();
            disk.crash(Crash::Power);
            checkpoint::tidy(&disk).unwrap();
            let checkpoint::Found::Valid(found) = checkpoint::read(&disk).unwrap() else {
                panic!("no checkpoint after a crash at operation {operation}")
            };
            assert_eq!(found.body(), bodies[found.sequence as usize - 1]);
            assert!(found.sequence == 2 || !written);
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_not_believed() {
    let disk = SimDisk::new(8);
    checkpoint::write(&disk, 9, b"some state\n").unwrap();
    let bits = disk.contents()[checkpoint::PATH].len() as u64 * 8;
    for bit in 0..bits {
        let copy = disk.fork();
        copy.flip_bit(checkpoint::PATH, bit).unwrap();
        match checkpoint::read(&copy).unwrap() {
            checkpoint::Found::Unusable(_) => {}
            _ => panic!("bit {bit}"),
        }
    }
}

proptest! {
    #[test]
    fn random_batches_and_crashes_keep_the_promise(
        script in prop::collection::vec(
            prop::collection::vec((1..4u32, 1..700usize), 1..6), 1..20),
        crashes in prop::collection::vec((1..60u64, any::<bool>()), 1..4),
        seed in any::<u64>(),
    ) {
        let disk = SimDisk::new(seed);
        let mut known: Vec<Vec<Item>> = Vec::new();
        let mut kept = 0;
        for (after, power) in crashes {
            let before = disk.operations();
            disk.set_fault(before + after, Fault::Stop);
            if let Ok((mut writer, found)) = open(&disk) {
                check(&found, &known, kept);
                while known.iter().flatten().count() > found.len() {
                    known.pop();
                }
                kept = known.len();
                let more = items(&script, writer.next_sequence());
                kept += append(&mut writer, &more).0;
                known.extend(more);
            }
            disk.crash(if power { Crash::Power } else { Crash::Process });
        }
        let (_, found) = open(&disk).unwrap();
        check(&found, &known, kept);
    }
}
