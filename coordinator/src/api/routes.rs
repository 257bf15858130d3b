//! Every endpoint, once: the router, the OpenAPI document and the metrics' labels are all made from this table.

use http::Method;

/// Who may call an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A node, by its client certificate.
    Node,
    /// A node, by its client certificate even if that has ended.
    NodeEvenExpired,
    /// A person or tool, by an operator token.
    Operator,
    /// A machine that is to be a node, by an enrolment token that would still let one in; a node; an operator.
    Installer,
    /// Anybody.
    Open,
}

/// What a body holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A document of `protocol`, by the name of its type.
    Json(&'static str),
    /// Text of this media type.
    Text(&'static str),
    /// Nothing.
    Empty,
}

/// A query parameter: name, type, description.
pub(crate) type Query = (&'static str, &'static str, &'static str);

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) route: Route,
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Query],
    pub(crate) request: Content,
    /// Status and content of the answers that are no errors.
    pub(crate) answers: &'static [(u16, Content, &'static str)],
}

macro_rules! endpoints {
    ($($(#[doc = $summary:literal])+ $route:ident = $method:ident $path:literal, $access:ident,
        [$($query:expr),*], $request:expr => [$($answer:expr),+];)+) => {
        /// An endpoint's name, as metrics and the OpenAPI document's `operationId` have it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Route { $($(#[doc = $summary])+ $route,)+ }

        impl Route {
            /// The word.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Route::$route => stringify!($route),)+ }
            }
        }

        /// Every endpoint.
        pub(crate) static ENDPOINTS: &[Endpoint] = &[$(Endpoint {
            route: Route::$route,
            method: Method::$method,
            path: $path,
            access: Access::$access,
            summary: concat!($($summary),+),
            query: &[$($query),*],
            request: $request,
            answers: &[$($answer),+],
        }),+];
    };
}

use Content::{Empty, Json, Text};

const PEM: Content = Text("application/x-pem-file");
const PLAIN: Content = Text("text/plain");
const LIMIT: Query = ("limit", "integer", "Most items of one answer; 1 to 1000.");
const SELECTOR: Query = (
    "labelSelector",
    "string",
    "As kubectl's -l: a=b, a!=b, a in (x,y), a notin (x,y), a, !a. Besides labels: cluster, profile, ready, zone, \
     region, enrolment, simulated.",
);
const CONTINUE: Query = ("continue", "string", "Where the next page starts: `continue` of the page before.");
const AFTER: Query = (
    "after",
    "integer",
    "Only events after this position, oldest first; left out, the newest `limit` events.",
);

endpoints! {
    /// Turns a token and a certificate request into a node.
    Enroll = POST "/v1/enroll", Open, [], Json("EnrollRequest") => [
        (200, Json("EnrollResponse"), "The certificate."),
        (202, Json("EnrollResponse"), "An operator has to approve the node; ask again after `retryAfterSeconds`.")
    ];
    /// A new certificate for the key of the current one, expired or not.
    Renew = POST "/v1/renew", NodeEvenExpired, [], Json("RenewRequest") => [
        (200, Json("EnrollResponse"), "The new certificate.")
    ];
    /// Takes transitions and state; answers after they are stored.
    Report = POST "/v1/reports", Node, [], Json("NodeReport") => [
        (200, Json("ReportAck"), "Stored up to `acknowledged`.")
    ];
    /// A sign of life; the answer is held until it is due or something is desired.
    Heartbeat = POST "/v1/heartbeat", Node, [], Json("Heartbeat") => [
        (200, Json("ReportAck"), "Heard.")
    ];
    /// Some neighbours of the node that asks, of its own cluster, for it to try their ports; a share that changes, so that
    /// in time every node tries every other.
    ListPeers = GET "/v1/peers", Node,
        [("keep", "string", "Names of neighbours that stay among them, with commas: those that did not answer.")],
        Empty => [
        (200, Json("Peers"), "At most 8 neighbours; none for a node without a cluster or alone in it.")
    ];
    /// Who answers.
    GetCoordinator = GET "/v1/coordinator", Operator, [], Empty => [
        (200, Json("CoordinatorView"), "The coordinator.")
    ];
    /// Nodes by name.
    ListNodes = GET "/v1/nodes", Operator, [SELECTOR, LIMIT, CONTINUE], Empty => [
        (200, Json("NodeList"), "A page of nodes; `revision` is where a watch starts.")
    ];
    /// One node.
    GetNode = GET "/v1/nodes/{name}", Operator, [], Empty => [(200, Json("NodeView"), "The node.")];
    /// Lets a waiting node in.
    ApproveNode = POST "/v1/nodes/{name}/approve", Operator, [], Empty => [(200, Json("NodeView"), "The node.")];
    /// Takes a node's right to speak away and closes its connections.
    RevokeNode = POST "/v1/nodes/{name}/revoke", Operator, [], Empty => [(200, Json("NodeView"), "The node.")];
    /// Transitions of one node.
    ListNodeEvents = GET "/v1/nodes/{name}/events", Operator, [AFTER, LIMIT], Empty => [
        (200, Json("EventList"), "Events, oldest first.")
    ];
    /// Desired configuration of one node.
    GetNodeConfig = GET "/v1/nodes/{name}/config", Operator, [], Empty => [
        (200, Json("NodeConfig"), "What is desired; generation 0 when nothing is.")
    ];
    /// Sets the desired configuration of one node. `generation` must be the current one (0: none yet); the answer has
    /// the new one.
    PutNodeConfig = PUT "/v1/nodes/{name}/config", Operator, [], Json("NodeConfig") => [
        (200, Json("NodeConfig"), "What is desired now.")
    ];
    /// Sets and removes labels of one node.
    PatchNodeLabels = PATCH "/v1/nodes/{name}/labels", Operator, [], Json("NodeLabels") => [
        (200, Json("NodeView"), "The node.")
    ];
    /// Clusters by name.
    ListClusters = GET "/v1/clusters", Operator, [], Empty => [(200, Json("ClusterList"), "Every cluster.")];
    /// One cluster.
    GetCluster = GET "/v1/clusters/{name}", Operator, [], Empty => [(200, Json("ClusterView"), "The cluster.")];
    /// Virtual machines of Harvester that are nodes, or should be, by namespace and name.
    ListMachines = GET "/v1/machines", Operator, [LIMIT, CONTINUE], Empty => [
        (200, Json("MachineList"), "A page of machines, as they were last read.")
    ];
    /// Node pools of guest clusters at Harvester, by cluster and name.
    ListPools = GET "/v1/pools", Operator, [], Empty => [
        (200, Json("PoolList"), "Every pool, as its machines were last read.")
    ];
    /// Transitions of all nodes and clusters.
    ListEvents = GET "/v1/events", Operator, [AFTER, LIMIT], Empty => [
        (200, Json("EventList"), "Events, oldest first.")
    ];
    /// Enrolment tokens without their secrets.
    ListTokens = GET "/v1/tokens", Operator, [], Empty => [(200, Json("TokenList"), "Every token.")];
    /// Makes an enrolment token.
    CreateToken = POST "/v1/tokens", Operator, [], Json("TokenRequest") => [
        (201, Json("TokenView"), "The token; the only answer that carries its secret.")
    ];
    /// Revokes an enrolment token; nodes it admitted stay.
    RevokeToken = DELETE "/v1/tokens/{id}", Operator, [], Empty => [(200, Json("TokenView"), "The token.")];
    /// Server-sent events: `node`, `cluster`, `event`, `bookmark`.
    Watch = GET "/v1/watch", Operator,
        [("after", "integer", "Resume after this position (a list's `revision`); `Last-Event-ID` does the same.")],
        Empty => [(200, Text("text/event-stream"), "Deltas once a second; ids are positions of the history.")];
    /// This document.
    GetOpenApi = GET "/v1/openapi.json", Operator, [], Empty => [
        (200, Text("application/json"), "The OpenAPI document.")
    ];
    /// Every trusted root.
    GetCa = GET "/v1/ca", Open, [], Empty => [(200, PEM, "PEM bundle; compare the pin before trusting it.")];
    /// Trusted roots, the active one first, each with the nodes its retirement would leave out.
    ListRoots = GET "/v1/ca/roots", Operator, [], Empty => [(200, Json("RootList"), "One root, or two while a rotation overlaps.")];
    /// Makes a new root that issues from now on; the one before stays trusted until it is retired.
    RotateCa = POST "/v1/ca/roots", Operator, [], Empty => [(201, Json("RootView"), "The new root.")];
    /// Ends the trust in the root before the active one; refused while nodes have not renewed since.
    RetireRoot = DELETE "/v1/ca/roots/{generation}", Operator,
        [("force", "boolean", "true leaves those nodes out: they must enrol anew.")], Empty => [
        (200, Json("RootList"), "What is trusted now.")
    ];
    /// How to install the agent from here, by hand.
    GetInstall = GET "/install/", Open, [], Empty => [(200, PLAIN, "Commands, a block a family.")];
    /// The packages and archives that are served, with their SHA-256.
    GetInstallIndex = GET "/install/index.json", Installer, [], Empty => [
        (200, Json("InstallIndex"), "Of this coordinator's own version; one a family and architecture.")
    ];
    /// A package or archive, by its name with or without the version. `HEAD`, one `Range`, `If-Range` and `If-None-Match`
    /// are understood; the ETag is the SHA-256.
    GetInstallFile = GET "/install/{file}", Installer, [], Empty => [
        (200, Text("application/octet-stream"), "All of it."),
        (206, Text("application/octet-stream"), "The part that was asked for."),
        (304, Empty, "It is the one that the caller has.")
    ];
    /// Whether the process lives.
    Healthz = GET "/healthz", Open, [], Empty => [(200, PLAIN, "It does.")];
    /// Whether it can do its work: every latch has dropped.
    Readyz = GET "/readyz", Open, [("verbose", "string", "Names the latches that do not hold, too.")], Empty => [
        (200, PLAIN, "Ready."),
        (503, PLAIN, "Not ready; a line a latch that holds.")
    ];
    /// OpenMetrics.
    Metrics = GET "/metrics", Open, [], Empty => [
        (200, Text("application/openmetrics-text"), "The metrics.")
    ];
}
