mod journal;
fn main() {
    journal::run();
}
