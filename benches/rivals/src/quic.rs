//! A transfer with the quinn crate: one stream one way, its own defaults but for windows that do not
//! limit it, packets as large as it is told, and as many threads as its runtime wants: one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt};

use crate::{Outcome, Task, tell, tls};

const CHUNK_BYTES: usize = 256 << 10;
/// As much as netblt has under way unless it is told otherwise.
const WINDOW_BYTES: u32 = 64 << 20;

fn transport(task: Task) -> Arc<TransportConfig> {
    let mut sizes = MtuDiscoveryConfig::default();
    sizes.upper_bound(u16::try_from(task.packet).unwrap_or(u16::MAX));
    let mut transport = TransportConfig::default();
    transport.mtu_discovery_config(Some(sizes));
    transport.stream_receive_window(VarInt::from_u32(WINDOW_BYTES));
    transport.receive_window(VarInt::from_u32(WINDOW_BYTES));
    transport.send_window(WINDOW_BYTES.into());
    Arc::new(transport)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

pub(crate) fn serve(task: Task) -> Outcome {
    runtime()?.block_on(async {
        let crypto = QuicServerConfig::try_from(tls::server_config()?)?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport(task));
        let endpoint = Endpoint::server(config, task.address)?;
        println!("listening");
        let incoming = endpoint.accept().await.ok_or("nobody came")?;
        let connection = incoming.await?;
        let mut stream = connection.accept_uni().await?;
        let (mut bytes, mut began) = (0, None);
        while let Some(chunk) = stream.read_chunk(CHUNK_BYTES, true).await? {
            began.get_or_insert_with(Instant::now);
            bytes += chunk.bytes.len() as u64;
        }
        tell(bytes, began.ok_or("nothing came")?.elapsed(), None);
        connection.close(VarInt::from_u32(0), b"");
        endpoint.wait_idle().await;
        Ok(())
    })
}

pub(crate) fn call(task: Task) -> Outcome {
    runtime()?.block_on(async {
        let any: SocketAddr = match task.address {
            SocketAddr::V4(_) => "0.0.0.0:0".parse()?,
            SocketAddr::V6(_) => "[::]:0".parse()?,
        };
        let mut endpoint = Endpoint::client(any)?;
        let crypto = QuicClientConfig::try_from(tls::client_config()?)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport(task));
        endpoint.set_default_client_config(config);
        let connection = endpoint.connect(task.address, "rival")?.await?;
        let mut stream = connection.open_uni().await?;
        let chunk = vec![7; CHUNK_BYTES];
        let mut left = task.bytes;
        while left > 0 {
            let len = left.min(CHUNK_BYTES as u64);
            stream.write_all(&chunk[..len as usize]).await?;
            left -= len;
        }
        stream.finish()?;
        // The server closes when it has all of it.
        let _ = tokio::time::timeout(Duration::from_secs(60), connection.closed()).await;
        Ok(())
    })
}
