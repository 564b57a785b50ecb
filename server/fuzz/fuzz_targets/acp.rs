//! The output of an agent that speaks the Agent Client Protocol, in a turn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use substrat_server::provider::acp::protocol::Client;
use substrat_server::provider::acp::requests::Open;
use substrat_server::provider::meter::Totals;

fuzz_target!(|bytes: &[u8]| {
    let mut client = Client::new(Totals::default());
    client.initialize("0");
    client.read(r#"{"id":0,"result":{"protocolVersion":1}}"#);
    client.open(Open::New, "/", &[]);
    client.read(r#"{"id":1,"result":{"sessionId":"s"}}"#);
    client.prompt("");
    substrat_fuzz::lines(bytes, |line| drop(client.read(line)));
    client.cancel();
    client.end();
});
