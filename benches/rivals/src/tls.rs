//! TLS 1.3 over TCP, AES-256-GCM, one connection and one thread a side.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

use crate::{Outcome, Task, tell};

const CHUNK_BYTES: usize = 256 << 10;

/// AES-256-GCM first, as netblt has it. AES-128-GCM stays for QUIC's first packets.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![
        aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
        aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
    ];
    Arc::new(provider)
}

pub(crate) fn server_config() -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let made = rcgen::generate_simple_self_signed(vec!["rival".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    Ok(config)
}

pub(crate) fn client_config() -> Result<ClientConfig, rustls::Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth())
}

/// Whoever answers on a test network is the one.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

pub(crate) fn serve(task: Task) -> Outcome {
    let listener = TcpListener::bind(task.address)?;
    println!("listening");
    let (socket, _) = listener.accept()?;
    let connection = ServerConnection::new(Arc::new(server_config()?))?;
    let mut stream = StreamOwned::new(connection, socket);
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut bytes, mut began) = (0, None);
    loop {
        match stream.read(&mut chunk)? {
            0 => break,
            n => bytes += n as u64,
        }
        began.get_or_insert_with(Instant::now);
    }
    tell(bytes, began.ok_or("nothing came")?.elapsed(), None);
    Ok(())
}

pub(crate) fn call(task: Task) -> Outcome {
    let socket = TcpStream::connect(task.address)?;
    let name = ServerName::try_from("rival")?;
    let connection = ClientConnection::new(Arc::new(client_config()?), name)?;
    let mut stream = StreamOwned::new(connection, socket);
    let chunk = vec![7; CHUNK_BYTES];
    let mut left = task.bytes;
    while left > 0 {
        let len = left.min(CHUNK_BYTES as u64);
        stream.write_all(&chunk[..len as usize])?;
        left -= len;
    }
    stream.conn.send_close_notify();
    stream.flush()?;
    // Tickets that nobody reads would turn the end of the connection into a reset.
    stream.sock.shutdown(Shutdown::Write)?;
    while stream.sock.read(&mut [0; 4096])? > 0 {}
    Ok(())
}
