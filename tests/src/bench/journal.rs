//! The journal against one `pwrite` and one `fdatasync` at a time.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use substrat_server::journal::{DIR, Disk, Error, Journal, Options, OsDisk, Writer, scan};

use crate::figures::{Figures, Target, percentile};

const RECORD: [u8; 512] = [7; 512];
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(3);

pub(crate) fn run(figures: &mut Figures) {
    let (raw_p50, raw_rate) = raw();
    let (p50, _, _) = writers(1);
    figures.add(
        "journal, 512 B records, 1 writer: p50",
        (p50 * 1e6, "us"),
        Some(("us raw pwrite + fdatasync p50", raw_p50 * 1e6)),
        Target::AtMostTimes(1.5),
    );
    for (count, times, most) in [(256, 40.0, 2.0), (1000, 80.0, 5.0)] {
        let (_, p99, rate) = writers(count);
        figures.add(
            format!("journal, 512 B records, {count} writers: records"),
            (rate, "/s"),
            Some(("/s raw, one at a time", raw_rate)),
            Target::AtLeastTimes(times),
        );
        figures.add(
            format!("journal, 512 B records, {count} writers: p99"),
            (p99 * 1e3, "ms"),
            Some(("ms raw p50", raw_p50 * 1e3)),
            Target::AtMost(most),
        );
    }
}

/// p50 in seconds and rate of raw commits on a file that was written with zeros.
fn raw() -> (f64, f64) {
    let folder = folder();
    let file = std::fs::File::create(folder.path().join("raw")).unwrap();
    for chunk in 0..16 {
        file.write_all_at(&vec![0; 1 << 20], chunk << 20).unwrap();
    }
    file.sync_all().unwrap();
    let mut samples = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < MEASURED {
        let begun = Instant::now();
        let offset = (samples.len() % 32_000) as u64 * RECORD.len() as u64;
        file.write_all_at(&RECORD, offset).unwrap();
        file.sync_data().unwrap();
        samples.push(begun.elapsed().as_secs_f64());
    }
    let rate = samples.len() as f64 / begun.elapsed().as_secs_f64();
    (percentile(&mut samples, 0.5), rate)
}

/// A folder on the disk that the homes of daemons lie on.
pub(crate) fn folder() -> tempfile::TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    tempfile::tempdir_in(root).unwrap()
}

/// p50 and p99 in seconds, and records per second.
fn writers(count: usize) -> (f64, f64, f64) {
    let home = folder();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(home.path()));
    disk.create_dir(DIR).unwrap();
    let empty = scan::<Error>(&*disk, 0, |_| Ok(())).unwrap();
    let journal = Journal::start(Writer::open(disk, Options::default(), &empty).unwrap()).unwrap();
    let sequence = Arc::new(Mutex::new(1));
    let (measuring, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut samples = runtime.block_on(async {
        let writers: Vec<_> = (0..count)
            .map(|_| {
                let (journal, sequence) = (journal.clone(), sequence.clone());
                let (measuring, stop) = (measuring.clone(), stop.clone());
                tokio::spawn(write(journal, sequence, measuring, stop))
            })
            .collect();
        tokio::time::sleep(WARM_UP).await;
        measuring.store(true, Ordering::Relaxed);
        tokio::time::sleep(MEASURED).await;
        stop.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for writer in writers {
            samples.extend(writer.await.unwrap());
        }
        samples
    });
    journal.close();
    let rate = samples.len() as f64 / MEASURED.as_secs_f64();
    (percentile(&mut samples, 0.5), percentile(&mut samples, 0.99), rate)
}

async fn write(
    journal: Journal,
    sequence: Arc<Mutex<u64>>,
    measuring: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
) -> Vec<f64> {
    let mut samples = Vec::with_capacity(16_384);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let durable = {
            let mut sequence = sequence.lock().unwrap();
            let durable = journal.append([(*sequence, &RECORD[..], 1)]);
            *sequence += 1;
            durable
        };
        durable.await.unwrap().unwrap();
        if measuring.load(Ordering::Relaxed) {
            samples.push(begun.elapsed().as_secs_f64());
        }
    }
    samples
}
