//! The network of the host, where the switch is off.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use substrat_server::workspace::SandboxPolicy;
use substrat_tests::hostile::{assert_held, python};
use substrat_tests::launch::Bench;

/// The machine's own address, if it has one.
fn own_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing: it only asks which address would be used.
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    address.map_or_else(|_| "127.0.0.2".to_owned(), |address| address.ip().to_string())
}

#[tokio::test]
async fn with_the_network_off_nothing_of_the_host_answers() {
    let bench = Bench::new(SandboxPolicy::Required);
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    let name = format!("substrat-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let datagrams =
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("{name}-d")).unwrap());
    let datagrams = datagrams.unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    listener.set_nonblocking(true).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let script = r#"
def tcp(address, port):
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    made.settimeout(5)
    made.connect((address, port))
for address in ["127.0.0.1", "127.0.0.2", "0.0.0.0", OWN, "::1", "::ffff:127.0.0.1", "8.8.8.8", "169.254.169.254"]:
    attempt("TCP to " + address, lambda: tcp(address, TCP))
for address in [OWN, "8.8.8.8", "255.255.255.255", "224.0.0.1"]:
    attempt("UDP to " + address, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (address, UDP)))
# The loopback of the sandbox takes it, and nobody is there.
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP))
attempt("an abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\0" + NAME))
attempt("an abstract socket of datagrams",
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "\0" + NAME + "-d"))
attempt("a name", lambda: socket.getaddrinfo("example.com", 80))
print("interfaces", sorted(name for _, name in socket.if_nameindex()))
print("sockets", sum(1 for line in open("/proc/net/unix")) - 1)
print("done")
"#;
    let header = format!(
        "OWN, TCP, UDP, NAME = {:?}, {}, {}, {name:?}\n",
        own_address(),
        tcp.local_addr().unwrap().port(),
        udp.local_addr().unwrap().port()
    );
    let ran = bench.run(python(bench.world(&[]), &format!("{header}{script}"))).await;
    assert_held(&ran);
    assert!(ran.stdout.contains("interfaces ['lo']\nsockets 0\n"), "{}", ran.stdout);
    assert_eq!(tcp.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(udp.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(datagrams.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[tokio::test]
async fn only_sockets_of_usual_families_are_made() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
usual = {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
for family in list(range(64)) + [2**31 - 1, 2**32 - 1]:
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW]:
        if family not in usual:
            attempt(f"a socket of family {family}", lambda: call(41 if X86 else 198, family, kind, 0),
                    only=errno.EAFNOSUPPORT)
for family in [socket.AF_INET, socket.AF_INET6]:
    for protocol in [1, 6, 17, 255]:
        attempt("a raw socket", lambda: socket.socket(family, socket.SOCK_RAW, protocol))
print("done")
"#;
    let mut world = bench.world(&[]);
    for network in [false, true] {
        world.network = network;
        assert_held(&bench.run(python(world.clone(), script)).await);
    }
}

#[tokio::test]
async fn the_network_is_not_set_up_from_inside() {
    let bench = Bench::new(SandboxPolicy::Required);
    let script = r#"
def ask(kind, body):
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    netlink.settimeout(5)
    # Request, with an answer.
    netlink.sendto(struct.pack("=IHHII", 16 + len(body), kind, 1 | 4 | 0x400, 1, 0) + body, (0, 0))
    answer = netlink.recv(4096)
    error = -struct.unpack("=i", answer[16:20])[0]
    if error:
        raise OSError(error, os.strerror(error))
    return answer
link = struct.pack("=BxHiII", 0, 0, 1, 1, 1)
attempt("setting a link", lambda: ask(16, link))
attempt("making a link", lambda: ask(16, struct.pack("=BxHiII", 0, 0, 0, 1, 1)
        + struct.pack("=HH4s", 8, 3, b"veth")))
attempt("an address", lambda: ask(20, struct.pack("=BBBBI", 2, 24, 0, 0, 1)
        + struct.pack("=HH4s", 8, 2, bytes([10, 0, 0, 1]))))
attempt("a route", lambda: ask(24, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0)))
attempt("a forwarding host", lambda: write("/proc/sys/net/ipv4/ip_forward", b"1"))
print("done")
"#;
    let mut world = bench.world(&[]);
    for network in [false, true] {
        world.network = network;
        assert_held(&bench.run(python(world.clone(), script)).await);
    }
}

#[tokio::test]
async fn the_api_socket_is_not_reached() {
    let bench = Bench::new(SandboxPolicy::Required);
    let path = bench.folder.path().join("home/substratd.sock");
    let api = UnixListener::bind(&path).unwrap();
    api.set_nonblocking(true).unwrap();
    let tools = bench.folder.path().join("home/tools.sock");
    let listener = UnixListener::bind(&tools).unwrap();
    let script = r#"
for way in ["/", "/workspace/" + "../" * 40, "/proc/self/root/", "/proc/1/root/",
            "/run/substrat/../../", "/run/substrat/tools.sock/../"]:
    attempt("the API by " + way, lambda: socket.socket(socket.AF_UNIX).connect(way + API.lstrip("/")))
attempt("beside the tool socket", lambda: socket.socket(socket.AF_UNIX).connect("/run/substrat/substratd.sock"))
attempt("replacing the tool socket", lambda: os.unlink("/run/substrat/tools.sock"))
socket.socket(socket.AF_UNIX).connect("/run/substrat/tools.sock")
print("done")
"#;
    let mut launch = python(bench.world(&[]), &format!("API = {path:?}\n{script}"));
    launch.tool_socket = Some(tools);
    assert_held(&bench.run(launch).await);
    assert_eq!(api.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.accept().expect("its own tool socket is reached");
}
