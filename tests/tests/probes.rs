use epitaph::source::kernel::{Kernel, Options};
#[test]
fn smoke() {
    let mut kernel = match Kernel::load(&Options::default()) {
        Ok(k) => k,
        Err(e) => panic!("{e}"),
    };
    for (n, s) in kernel.probes() {
        println!("{n}: {s:?}");
    }
    let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::create_dir("/sys/fs/cgroup/unified/probes-smoke").unwrap();
    std::fs::remove_dir("/sys/fs/cgroup/unified/probes-smoke").unwrap();
    kernel.drain(|b| println!("{:?}", epitaph::decode::decode(b)));
    println!("{:?}", kernel.lost());
}
