//! The output of `codex app-server`, in a turn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::codex::app_server::Client;
use substrat_server::provider::meter::Totals;

fuzz_target!(|bytes: &[u8]| {
    let mut client = Client::new(Totals::default());
    client.initialize("0");
    client.read(r#"{"method":"turn/started","params":{"turn":{"id":"u"}}}"#);
    substrat_fuzz::lines(bytes, |line| drop(client.read(line)));
    client.interrupt();
    client.end();
});
