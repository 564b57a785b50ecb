use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use substrat_server::journal::*;

fn pct(v: &mut Vec<f64>, p: f64) -> f64 {
    v.sort_by(|a, b| a.total_cmp(b));
    v[((v.len() - 1) as f64 * p) as usize]
}

fn raw(dir: &std::path::Path) -> (f64, f64) {
    let f = std::fs::File::create(dir.join("raw")).unwrap();
    for i in 0..16 {
        f.write_all_at(&vec![0; 1 << 20], i << 20).unwrap();
    }
    f.sync_all().unwrap();
    let mut v = vec![];
    let b = [7u8; 512];
    let t = Instant::now();
    let n = 5000;
    for i in 0..n {
        let t = Instant::now();
        f.write_all_at(&b, i * 512).unwrap();
        f.sync_data().unwrap();
        v.push(t.elapsed().as_secs_f64());
    }
    (pct(&mut v, 0.5), n as f64 / t.elapsed().as_secs_f64())
}

pub fn run() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let (p50, rate) = raw(dir.path());
    println!("raw p50 {:.1}us {rate:.0}/s", p50 * 1e6);
    for writers in [1usize, 64, 256, 1000] {
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(home.path()));
        disk.create_dir(DIR).unwrap();
        let scan = scan::<Error>(&*disk, 0, |_| Ok(())).unwrap();
        let w = Writer::open(disk, Options::default(), &scan).unwrap();
        let j = Journal::start(w).unwrap();
        let seq = Arc::new(std::sync::Mutex::new(1u64));
        let rt = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let t = Instant::now();
        let mut lat: Vec<f64> = rt.block_on(async {
            let mut set = vec![];
            for _ in 0..writers {
                let (j, seq, stop) = (j.clone(), seq.clone(), stop.clone());
                set.push(tokio::spawn(async move {
                    let b = [7u8; 512];
                    let mut v = Vec::with_capacity(4096);
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let t = Instant::now();
                        let c = {
                            let mut s = seq.lock().unwrap();
                            let c = j.append(*s, &b, 1);
                            *s += 1;
                            c
                        };
                        c.await.unwrap().unwrap();
                        v.push(t.elapsed().as_secs_f64());
                    }
                    v
                }));
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let mut all = vec![];
            for s in set {
                all.extend(s.await.unwrap());
            }
            all
        });
        let el = t.elapsed().as_secs_f64();
        let n = lat.len() as f64;
        println!(
            "{writers}: {:.0}/s = {:.1}x raw, p50 {:.0}us ({:.2}x) p99 {:.2}ms commits {}",
            n / el,
            n / el / rate,
            pct(&mut lat, 0.5) * 1e6,
            pct(&mut lat, 0.5) / p50,
            pct(&mut lat, 0.99) * 1e3,
            j.status().commits
        );
        j.close();
    }
}
