// SPDX-License-Identifier: Apache-2.0
//! A name server for tests of name resolution. It encodes its responses without the library under test.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use parking_lot::Mutex;

const HEADER: usize = 12;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TTL_SECONDS: u32 = 30;

/// A question to a [`NameServer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsQuestion {
    /// Name in lower case, without the trailing dot.
    pub name: String,
    /// Whether the query is for AAAA records; otherwise for A records.
    pub ipv6: bool,
    /// Whether the query came over TCP.
    pub tcp: bool,
}

/// A response of a [`NameServer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsAnswer {
    /// The addresses of the queried family. Without one, the response is NODATA.
    Addresses(Vec<IpAddr>),
    /// The name is an alias (CNAME) of another name with these addresses.
    Alias(String, Vec<IpAddr>),
    /// A response code: 2 is SERVFAIL, 3 NXDOMAIN, 5 REFUSED.
    Code(u8),
    /// A truncated response without records.
    Truncated,
    /// No response.
    Silence,
}

impl DnsAnswer {
    /// The server failed.
    pub const SERVFAIL: Self = Self::Code(2);
    /// The name does not exist.
    pub const NXDOMAIN: Self = Self::Code(3);
    /// The server refuses queries for this name.
    pub const REFUSED: Self = Self::Code(5);
}

type Respond = dyn Fn(&DnsQuestion) -> DnsAnswer + Send + Sync;

/// A name server on UDP and TCP, which responds according to a function until the process ends.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    questions: Arc<Mutex<Vec<DnsQuestion>>>,
}

impl NameServer {
    /// Starts a name server. Port 0 selects a free one.
    pub fn start(
        address: SocketAddr,
        respond: impl Fn(&DnsQuestion) -> DnsAnswer + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let (tcp, udp) = bind(address)?;
        let address = tcp.local_addr()?;
        let questions = Arc::new(Mutex::new(Vec::new()));
        let server = Arc::new(Responder {
            respond: Box::new(respond),
            questions: Arc::clone(&questions),
        });
        let over_udp = Arc::clone(&server);
        thread::spawn(move || over_udp.serve_udp(&udp));
        thread::spawn(move || server.serve_tcp(&tcp));
        Ok(Self { address, questions })
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the queries so far.
    pub fn questions(&self) -> Vec<DnsQuestion> {
        self.questions.lock().clone()
    }
}

/// Binds both sockets to one port. Free ports come from below the kernel's range for clients, whose UDP sockets would
/// collide.
fn bind(mut address: SocketAddr) -> std::io::Result<(TcpListener, UdpSocket)> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let is_free_port = address.port() == 0;
    let first = u16::try_from(std::process::id() % 10_000).unwrap_or_default();
    loop {
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        if is_free_port {
            address.set_port(20_000 + first.wrapping_add(count) % 12_000);
        }
        let sockets = TcpListener::bind(address).and_then(|tcp| Ok((tcp, UdpSocket::bind(address)?)));
        match sockets {
            Err(error) if is_free_port && error.kind() == ErrorKind::AddrInUse && count < 12_000 => {}
            sockets => return sockets,
        }
    }
}

struct Responder {
    respond: Box<Respond>,
    questions: Arc<Mutex<Vec<DnsQuestion>>>,
}

impl Responder {
    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = buffer.get(..length).and_then(|message| self.answer(message, false)) {
                drop(socket.send_to(&answer, client));
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            drop(self.serve_stream(stream));
        }
    }

    fn serve_stream(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message)?;
        if let Some(answer) = self.answer(&message, true) {
            let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
            stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat())?;
        }
        Ok(())
    }

    fn answer(&self, message: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let (labels, rest) = read_name(message.get(HEADER..)?)?;
        let kind = u16::from_be_bytes([*rest.first()?, *rest.get(1)?]);
        let question = DnsQuestion {
            name: labels.join(".").to_ascii_lowercase(),
            ipv6: kind == TYPE_AAAA,
            tcp,
        };
        let answer = (self.respond)(&question);
        let mut questions = self.questions.lock();
        questions.push(question.clone());
        drop(questions);
        let question_bytes = message.get(HEADER..message.len() - rest.len() + 4)?;
        encode(message.get(..2)?, question_bytes, &question, &answer)
    }
}

/// Returns the labels of a name, and the remaining bytes.
fn read_name(mut bytes: &[u8]) -> Option<(Vec<String>, &[u8])> {
    let mut labels = Vec::new();
    loop {
        let (&length, rest) = bytes.split_first()?;
        if length == 0 {
            return Some((labels, rest));
        }
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        labels.push(String::from_utf8_lossy(label).into_owned());
        bytes = rest;
    }
}

fn encode(id: &[u8], asked: &[u8], question: &DnsQuestion, answer: &DnsAnswer) -> Option<Vec<u8>> {
    // A pointer to the name in the question.
    let own_name = vec![0xc0, 12];
    let (code, truncated, records) = match answer {
        DnsAnswer::Silence => return None,
        DnsAnswer::Code(code) => (*code, false, Vec::new()),
        DnsAnswer::Truncated => (0, true, Vec::new()),
        DnsAnswer::Addresses(addresses) => (0, false, address_records(&own_name, question, addresses)),
        DnsAnswer::Alias(target, addresses) => {
            let target = encode_name(target);
            let mut records = vec![record(&own_name, 5, &target)];
            records.extend(address_records(&target, question, addresses));
            (0, false, records)
        }
    };
    let mut message = id.to_vec();
    // A response, with recursion desired and available.
    message.extend([0x81 | if truncated { 2 } else { 0 }, 0x80 | code]);
    message.extend([0, 1]);
    message.extend(u16::try_from(records.len()).ok()?.to_be_bytes());
    message.extend([0; 4]);
    message.extend(asked);
    message.extend(records.concat());
    Some(message)
}

fn address_records(name: &[u8], question: &DnsQuestion, addresses: &[IpAddr]) -> Vec<Vec<u8>> {
    let same_family = addresses.iter().filter(|address| address.is_ipv6() == question.ipv6);
    same_family
        .map(|address| match address {
            IpAddr::V4(address) => record(name, TYPE_A, &address.octets()),
            IpAddr::V6(address) => record(name, TYPE_AAAA, &address.octets()),
        })
        .collect()
}

fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut record = name.to_vec();
    record.extend(kind.to_be_bytes());
    record.extend(1_u16.to_be_bytes());
    record.extend(TTL_SECONDS.to_be_bytes());
    record.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    record.extend(data);
    record
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
