//! A proxy to the API server that can be closed.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Forwards TCP connections while it is open.
pub struct Proxy {
    pub address: SocketAddr,
    open: watch::Sender<bool>,
    _serve: AbortOnDropHandle<()>,
}

impl Proxy {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let open = watch::Sender::new(true);
        let serve = AbortOnDropHandle::new(tokio::spawn(serve(listener, server, open.subscribe())));
        Self { address, open, _serve: serve }
    }

    /// A closed proxy cuts all connections and drops new ones.
    pub fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, open: watch::Receiver<bool>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut open = open.clone();
        tokio::spawn(async move {
            if !*open.borrow_and_update() {
                return;
            }
            if let Ok(mut server) = TcpStream::connect(server).await {
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    _ = open.wait_for(|open| !open) => {}
                }
            }
        });
    }
}
