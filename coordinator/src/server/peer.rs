//! Who is at the other end of a connection, read once at the handshake and judged again at every request.

use std::sync::Arc;

use crate::api::error::Answer;
use crate::app::App;
use crate::fleet::Node;
use crate::pki::PeerCertificate;

/// The node whose certificate a connection showed.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) node: Arc<Node>,
    pub(crate) certificate: Arc<PeerCertificate>,
}

impl Peer {
    /// Refuses a node that was revoked or whose certificate has ended; both may have happened since the handshake.
    pub(crate) fn check(&self, app: &App) -> Answer<()> {
        app.registrar.authenticate(&self.certificate, app.clock().now())?;
        Ok(())
    }

    /// Refuses a node that was revoked; its certificate may have ended.
    pub(crate) fn check_standing(&self, app: &App) -> Answer<()> {
        if self.node.may_speak() {
            return Ok(());
        }
        match self.check(app) {
            // What enrolment says now goes before what was last heard of it.
            Ok(()) => Ok(()),
            Err(failure) if failure.error().reason == "CertificateExpired" => Ok(()),
            Err(failure) => Err(failure.closing()),
        }
    }
}
