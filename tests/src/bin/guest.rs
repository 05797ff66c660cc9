fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(epitaph_tests::guest::main(&args));
}
