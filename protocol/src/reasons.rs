//! The one registry of reason codes: docs, logs, metrics and the page all read it.
//!
//! A code is added here, with a runbook `docs/runbooks/<Code>.md`; a test refuses one without the other.

use crate::Severity;

/// What the registry knows of a code.
#[derive(Clone, Copy, Debug)]
pub struct ReasonInfo {
    /// The code.
    pub code: &'static str,
    /// One sentence for people.
    pub sentence: &'static str,
    /// Lowest and highest severity a condition with this reason may have.
    pub severities: (Severity, Severity),
    /// Journal `MESSAGE_ID`, 32 hex digits; never reused.
    pub message_id: &'static str,
}

macro_rules! reason_codes {
    ($($code:ident = $word:literal, $min:ident..=$max:ident, $id:literal, $sentence:literal;)+) => {
        open_enum! {
            /// Why a condition has its status, as a CamelCase code.
            ReasonCode { $(#[doc = $sentence] $code = $word,)+ }
        }

        /// Every code with its sentence, severity range and `MESSAGE_ID`.
        pub const REASONS: &[ReasonInfo] = &[$(ReasonInfo {
            code: $word,
            sentence: $sentence,
            severities: (Severity::$min, Severity::$max),
            message_id: $id,
        }),+];
    };
}

reason_codes! {
    TimedOut = "TimedOut", Info..=Warn, "af97f50cd124501fa8b4c0f165d49ddd",
        "The read did not end within its time limit.";
    PermissionDenied = "PermissionDenied", Info..=Warn, "6ab3e22fa1de5b1485fd0940d4f54756",
        "The operating system refused the read.";
    ConnectionRefused = "ConnectionRefused", Info..=Error, "b44dc84e992d5994a86d1fa8830c9003",
        "The peer refused the connection.";
    Unreachable = "Unreachable", Info..=Error, "ee248118735f59f8849b6f887044d0cd",
        "The peer cannot be reached.";
    NameNotResolved = "NameNotResolved", Info..=Error, "1de40631c1095e56b8c4f2c31647adf1",
        "The name does not resolve.";
    TlsFailed = "TlsFailed", Info..=Error, "37cb7b0dfa4c55a592e8edab8fd940df",
        "The TLS handshake failed.";
    Unauthenticated = "Unauthenticated", Info..=Error, "6ef79f4d568f5790b1e42dc3ef06abe7",
        "The peer does not accept who we are (401).";
    Forbidden = "Forbidden", Info..=Error, "1afcdaef7c915f3f95f776ce1f3bd8e2",
        "The peer knows us and refuses (403).";
    InvalidAnswer = "InvalidAnswer", Info..=Warn, "4f4bd72816855b4cab3ba6273366baa7",
        "The answer makes no sense.";
    Unavailable = "Unavailable", Info..=Error, "4aaa0ecbd49e54e88df3386d471e6945",
        "The peer says it cannot answer now.";
    Unsupported = "Unsupported", Info..=Warn, "6b90a64efd3c5e7c8655bdfb4e873a3d",
        "The peer does not know the call.";
    InvalidInput = "InvalidInput", Info..=Warn, "023588278fac5ae29ca89114261dcf03",
        "A file or setting cannot be used as it is.";
    Panicked = "Panicked", Warn..=Error, "fafa1fabb9de5ac9b6fdf76d6acc1814",
        "The check failed inside Outrider itself.";
    NotYetRead = "NotYetRead", Ok..=Info, "66a63d84fd2158129fe0e03058ef2c07",
        "The first read has not been made yet.";
    IoError = "IoError", Info..=Warn, "d09367cf712458d08276d74d934b3621",
        "The operating system reported an error.";
    AgentRunning = "AgentRunning", Ok..=Ok, "516a14a11aae509f9897c32c5a85a87b",
        "The agent runs and its checks make progress.";
    AgentStarting = "AgentStarting", Info..=Info, "cf34639cc0535cbf9bdc1ff170537176",
        "The agent has started and waits for its first reads.";
    NodeHeard = "NodeHeard", Ok..=Ok, "0278d8e2f05756109da72b332cd601df",
        "The node reports in time.";
    NodeSilent = "NodeSilent", Warn..=Error, "922c9857a5c658c6ac8c7a9c96f959e4",
        "The node has not been heard for longer than its heartbeats allow.";
    NodeNeverReported = "NodeNeverReported", Info..=Warn, "a42f279ba37a510aa8690e0f79742421",
        "The node enrolled and has not reported yet.";
    NodeRetired = "NodeRetired", Info..=Info, "7828abe8ac3f425cac42a074a52d850d",
        "The node is silent, and its virtual machine was deleted at Harvester.";
    ConfigAccepted = "ConfigAccepted", Ok..=Ok, "3352e66a58dd53c6999ed78540731132",
        "The configuration as written is in force.";
    ConfigRejected = "ConfigRejected", Warn..=Error, "00370558ef7259f092ef80c279819f03",
        "The configuration as written has errors; the last good one stays in force.";
    ReportsFlow = "ReportsFlow", Ok..=Ok, "8904127af381552d81407b6d602172d1",
        "Transitions reach the coordinator.";
    NoCoordinator = "NoCoordinator", Ok..=Info, "04bd89f4dd5a5c7695a276d0a92e5f19",
        "No coordinator is configured; verdicts stay on this machine.";
    CoordinatorUnreachable = "CoordinatorUnreachable", Warn..=Error, "c234d5a3b72d53758a778726c253c07c",
        "The coordinator does not answer; transitions wait in the spool.";
    EnrolmentPending = "EnrolmentPending", Info..=Warn, "a2215260ba6f527ead7a7abe258477c6",
        "An operator has to approve this node.";
    EnrolmentRefused = "EnrolmentRefused", Warn..=Error, "c26e97cc4a085c7da62903b90c615e19",
        "The coordinator refuses this node.";
    EnrolmentTokenUnusable = "EnrolmentTokenUnusable", Error..=Error, "8c6f6e26e81cce196748b48ee497a4af",
        "The enrolment token is missing, cannot be read or is malformed; nothing was sent.";
    SpoolOverflowed = "SpoolOverflowed", Warn..=Error, "9fb4fef1650c54a5b0eb4d1004270f22",
        "The spool was full; older transitions were merged and counted.";
    SpoolFailing = "SpoolFailing", Warn..=Error, "d201b11b009e5064a4461b8815388bcb",
        "The spool cannot be written or was corrupt and set aside.";
    IdentityClear = "IdentityClear", Ok..=Ok, "81bc799232f654059d3b6f0be32adabd",
        "No other living machine has this identity.";
    IdentityCloned = "IdentityCloned", Error..=Error, "bd9365951558589aa8a2ce357d2bb918",
        "Two living machines share one identity.";
    HostHasRoom = "HostHasRoom", Ok..=Ok, "975954c44eec59f2acbf0104607e8b96",
        "Disk and memory leave room to work.";
    DiskSpaceLow = "DiskSpaceLow", Warn..=Error, "7b37a1927f7051409e1001b783bbde8b",
        "A file system is nearly full.";
    InodesLow = "InodesLow", Warn..=Error, "6cec47d84d2b58ba91a137a2b5721dd9",
        "A file system is nearly out of inodes.";
    FilesystemReadOnly = "FilesystemReadOnly", Warn..=Error, "0e112c54aff95a0193de46d528e541f1",
        "A file system that must be written is read-only.";
    MemoryLow = "MemoryLow", Warn..=Error, "fdaed7caaa7d5e38ac96f5bae0108da6",
        "Little memory is available.";
    PressureHigh = "PressureHigh", Warn..=Warn, "da60a4c89b5250c7a5004367f709e5d6",
        "Tasks stall on memory or I/O.";
    ClockInSync = "ClockInSync", Ok..=Ok, "774abe304e6d5f3d9aeb069f8ac4eb97",
        "The clock is synchronised and agrees with the coordinator's.";
    ClockUnsynchronized = "ClockUnsynchronized", Info..=Warn, "f7a50d9f23345b2db42177f8a2bba81e",
        "Nobody disciplines the clock.";
    ClockSkewed = "ClockSkewed", Warn..=Error, "02a7af1259e1572485451fed79b516c0",
        "The clock is off from the coordinator's, or from what others agree on.";
    ClockSourceLost = "ClockSourceLost", Warn..=Warn, "c93ddac06a5c41ed961d5e92f88e7e8f",
        "The clock is still right, and its time service hears none of its sources.";
    ClockOfPeerWrong = "ClockOfPeerWrong", Warn..=Warn, "7da7b8e5d86343729ec554580192c900",
        "This clock is right and another machine's is wrong.";
    CloudInitDone = "CloudInitDone", Ok..=Ok, "656ed9e3d7a95141bca0385d21c94a98",
        "cloud-init finished.";
    CloudInitDegraded = "CloudInitDegraded", Warn..=Warn, "5d0abe124f8357578f50b183448beac2",
        "cloud-init finished with recoverable warnings.";
    CloudInitFailed = "CloudInitFailed", Error..=Error, "d328336a974c55f3bf0665efceb3cb03",
        "cloud-init failed.";
    CloudInitRunning = "CloudInitRunning", Info..=Warn, "a9c70c175c5d59d3bde230ab808e1d9b",
        "cloud-init has not finished.";
    CloudInitDisabled = "CloudInitDisabled", Info..=Info, "0abe193bf0e75bffb38130d2f6ed5c16",
        "cloud-init is switched off for this machine.";
    CloudInitNotRun = "CloudInitNotRun", Info..=Info, "1dc97f71db0e44e797ae2a9c53045303",
        "cloud-init has not begun in this boot.";
    CloudInitNotInstalled = "CloudInitNotInstalled", Info..=Info, "62846c486ece4eeaa3a4b6abdb3de4c1",
        "cloud-init is not installed.";
    GuestAgentRunning = "GuestAgentRunning", Ok..=Ok, "37408e8301bd5e02a9e7891154ad38b3",
        "The guest agent runs and has its channel.";
    GuestAgentPortMissing = "GuestAgentPortMissing", Warn..=Error, "08c4815a77245bec8a45028ad1915342",
        "This VM has no guest-agent channel.";
    GuestAgentNotInstalled = "GuestAgentNotInstalled", Warn..=Error, "e6da9a84b5ba5a73850e3200709f8082",
        "The guest agent is not installed.";
    GuestAgentMasked = "GuestAgentMasked", Warn..=Error, "e63c21416e9b5d7ea5509f46e2d76f5c",
        "Somebody masked the guest agent's unit.";
    GuestAgentStopped = "GuestAgentStopped", Warn..=Error, "3c91501dd4875318a231d035b4103d08",
        "The guest agent does not run.";
    GuestAgentStarting = "GuestAgentStarting", Info..=Info, "8d843281d2d25111b9823e798ade808e",
        "The machine booted a short while ago; the guest agent may still start.";
    GuestAgentUnitMissing = "GuestAgentUnitMissing", Warn..=Error, "eaae7ebffdb348b9a9ff78948b09d373",
        "The guest agent is installed and systemd knows no unit for it.";
    GuestAgentCallsRefused = "GuestAgentCallsRefused", Warn..=Error, "39e3770c710a4614a04c777d232c4541",
        "The guest agent is configured to refuse calls that the host needs.";
    GuestAgentDenied = "GuestAgentDenied", Warn..=Error, "02e8ba7f24a34b8d88510df7a3334954",
        "SELinux denies the guest agent something.";
    GuestAgentInstalling = "GuestAgentInstalling", Info..=Info, "691b4ef7934e4d8c9fbad30d26dd9585",
        "The guest agent is being set up.";
    GuestAgentLockHeld = "GuestAgentLockHeld", Info..=Error, "3782bb5cacf246a094e63f0c7d20cb52",
        "The guest agent's set-up waits for the package manager, which somebody else uses.";
    GuestAgentNoRepository = "GuestAgentNoRepository", Warn..=Error, "5daec7164f424e33afd951cdb6616521",
        "No repository that can be reached offers the guest agent's package.";
    GuestAgentInstallFailed = "GuestAgentInstallFailed", Warn..=Error, "4c472b9b1d7f4725997b9694600707e0",
        "The guest agent's package could not be installed.";
    GuestAgentRebootNeeded = "GuestAgentRebootNeeded", Warn..=Warn, "9809d38bbf8f4384a15126733706a397",
        "The guest agent is installed in the next snapshot; a reboot activates it.";
    GuestAgentSetupHeld = "GuestAgentSetupHeld", Warn..=Error, "c5e96e5d464347beb517383367b84f37",
        "The guest agent's set-up may not do what is needed.";
    HarvesterRead = "HarvesterRead", Ok..=Ok, "a6d9a8ed708d41a198e4f3ea4e63aec3",
        "Harvester's virtual machines are read.";
    HarvesterPartlyRead = "HarvesterPartlyRead", Info..=Info, "94b404e0936344c080bcdd155fadc480",
        "Harvester's virtual machines are read, and the labels of its hosts are not.";
    MachineReports = "MachineReports", Ok..=Ok, "9105b436f47f44098ccafa8f3f9c252e",
        "The virtual machine runs and its node reports.";
    MachineStarting = "MachineStarting", Info..=Warn, "df61dea0d167451985ad0cdbd453ce54",
        "The virtual machine has started a short while ago, or is being started.";
    MachineNeverReported = "MachineNeverReported", Warn..=Error, "5eb7e2c30fd942c891813a635acb0cd2",
        "The virtual machine runs and has never been heard as a node.";
    MachineStopped = "MachineStopped", Info..=Info, "6ff7882e46b24a4bb2e0660d5f1e3b70",
        "The virtual machine does not run; what was reported of it is stale.";
    MachineMatched = "MachineMatched", Ok..=Ok, "6cdbb35cbd8947c886edf7e038c8a94c",
        "One node is this virtual machine.";
    MachineAmbiguous = "MachineAmbiguous", Warn..=Error, "18d72e18701448bbad47cbf64e670701",
        "Several nodes or virtual machines share a mark of identity, so that none of them is matched.";
    MachineContradicted = "MachineContradicted", Warn..=Warn, "3933a58aa003413b8e23fc83f4742784",
        "A node and the virtual machine share one mark of identity and differ in another.";
    GuestAgentConnectedAtHost = "GuestAgentConnectedAtHost", Ok..=Ok, "dd92fb7e460040d5b61e1272e004efb3",
        "Harvester reaches the guest agent and shows an address.";
    GuestAgentNotPolled = "GuestAgentNotPolled", Info..=Warn, "1b0ec31e7a484425ac344208385f1fd2",
        "The guest agent runs, and Harvester has not noticed it yet.";
    GuestAgentNeverConnected = "GuestAgentNeverConnected", Info..=Error, "923a226fbe934ea493b1cda7ed42bfa7",
        "The virtual machine runs and its guest agent has not connected.";
    GuestAgentDisconnected = "GuestAgentDisconnected", Info..=Warn, "9f19d0b682634da19a59ea28c45a7570",
        "Harvester does not reach the guest agent any more.";
    GuestAgentNoAddress = "GuestAgentNoAddress", Info..=Error, "49b7ceb3784f4ca8aa47e756f4d7f23c",
        "Harvester reaches the guest agent and shows no address that can be used.";
    RancherRead = "RancherRead", Ok..=Ok, "ca47e529dc5d479488a79d678e760860",
        "The node pools that Rancher wants are read.";
    PoolFull = "PoolFull", Ok..=Ok, "f06cb25ccfcb444a885fc8be44ba6f65",
        "A node pool has as many machines as Rancher wants, and all of them report.";
    PoolShort = "PoolShort", Info..=Error, "485e1394d0414c169f5bcf243eb1a0ec",
        "Fewer machines of a node pool are there, or report, than Rancher wants.";
    PoolSurplus = "PoolSurplus", Info..=Info, "84d71816920c461d8bb726b9d37075f3",
        "A node pool has more machines than Rancher wants, as in a roll-out.";
    PoolWantedUnknown = "PoolWantedUnknown", Info..=Info, "7583137179504807830896e5c4a641b2",
        "How many machines Rancher wants of a node pool is not known.";
    PoolSteady = "PoolSteady", Ok..=Ok, "ddd570bcf66443e8ab6becd46216233f",
        "No machine of the node pool was replaced lately.";
    PoolRolling = "PoolRolling", Info..=Info, "747e54766d184aa3995eb1ab94c69396",
        "Machines of the node pool were replaced within the last hour.";
    PoolReplacedInVain = "PoolReplacedInVain", Warn..=Warn, "18abb4e33cb047e5a793ad017889268b",
        "Machines of the node pool are deleted before they ever report, and made again.";
    EtcdMemberAnswers = "EtcdMemberAnswers", Ok..=Ok, "41a555ffcff0582181eab6a89dd6e315",
        "The local etcd member answers a linearizable read.";
    EtcdMemberIsLearner = "EtcdMemberIsLearner", Info..=Info, "ff465b64f33759fa9329c7c588018a6c",
        "The local etcd member is a learner and catches up.";
    EtcdMemberDown = "EtcdMemberDown", Error..=Error, "6e38f1ed83cd56d7ae208a4e9251285a",
        "The local etcd member does not answer.";
    EtcdMemberRemoved = "EtcdMemberRemoved", Warn..=Error, "3092709914d1e89d2bcdc2bdc80c8fc5",
        "The local etcd member was removed from its cluster and holds old data.";
    EtcdClusterReset = "EtcdClusterReset", Warn..=Warn, "ac46abd716cb3f654be63fe37e1fc5e8",
        "The cluster was reset on this server, which has not been started normally since.";
    EtcdLeaderUnstable = "EtcdLeaderUnstable", Warn..=Warn, "0e515d34296245b6efe22ed7154370c9",
        "The leader changes again and again.";
    EtcdReadFailed = "EtcdReadFailed", Warn..=Error, "7e557f2bad164c3aa8bee2362d4ee8dc",
        "The local etcd member answers, but a linearizable read fails.";
    EtcdQuorumMet = "EtcdQuorumMet", Ok..=Ok, "16fdd58a418b55cab2926b6f326d36f2",
        "Every voter is healthy.";
    EtcdSingleVoter = "EtcdSingleVoter", Info..=Info, "7555195250765be6bfdcb423b9060142",
        "One voter: it tolerates no failure.";
    EtcdEvenVoters = "EtcdEvenVoters", Info..=Warn, "7951b93bf9d45555853775a770b7e4af",
        "An even number of voters tolerates no more than one voter less.";
    EtcdToleranceReduced = "EtcdToleranceReduced", Info..=Warn, "845fbd2608cf532eb2abbf85fd1bc079",
        "A voter is down; quorum holds with reserve.";
    EtcdNoTolerance = "EtcdNoTolerance", Info..=Error, "259c7fe109c9549ba1e04094ee7aa06b",
        "Quorum holds; the next loss stops the cluster.";
    EtcdQuorumSuspected = "EtcdQuorumSuspected", Warn..=Error, "e779e571e35b51ba86c97c2059d52989",
        "A linearizable read failed; quorum may be lost.";
    EtcdQuorumLost = "EtcdQuorumLost", Error..=Error, "6bb316ada2a75fbeaa52193710eb99f6",
        "Fewer voters are healthy than quorum needs.";
    EtcdNoLeader = "EtcdNoLeader", Error..=Error, "159a0e08411d45228de22aae28e20b65",
        "etcd answers and sees no leader, so nothing can be written.";
    EtcdVotersUnseen = "EtcdVotersUnseen", Warn..=Error, "6d8b2a406ebd4787a483c41f388f3083",
        "Quorum holds; too few voters answer here to say what it tolerates.";
    EtcdVotersUnknown = "EtcdVotersUnknown", Warn..=Error, "d4db09cbdef84e73ac0ae1eebd9efd67",
        "Too few voters could be asked to tell whether quorum holds.";
    EtcdViewsStale = "EtcdViewsStale", Warn..=Error, "9fe241f57e8743e7b5ff7db7a514bbe5",
        "No member of the cluster has reported lately.";
    EtcdNoMembers = "EtcdNoMembers", Warn..=Error, "d3c93888f09d56699abe0802d23442af",
        "The member list is empty or could not be read.";
    EtcdMembersExpected = "EtcdMembersExpected", Ok..=Ok, "eeb15a27bc4c5f6ba60d15badd6291c3",
        "The member list is as expected.";
    EtcdGhostMember = "EtcdGhostMember", Warn..=Error, "14c9fd457cf75fc195aa85e334a1ea41",
        "A member has no Kubernetes node, or its node runs another member now.";
    EtcdLearnerJoining = "EtcdLearnerJoining", Info..=Info, "1fc37ff900115c5282f5a76232517407",
        "A learner joins and catches up.";
    EtcdLearnerBlocking = "EtcdLearnerBlocking", Warn..=Error, "236ba2c1b9e8530c98a76496ded17e8f",
        "A learner does not answer and blocks further joins.";
    EtcdLearnerLagging = "EtcdLearnerLagging", Warn..=Warn, "ee7391581cd43e24d990a636575575e3",
        "A learner does not catch up or is not promoted.";
    EtcdVoterLagging = "EtcdVoterLagging", Info..=Warn, "6cf3eb2b3c134238a6cba755a2f2a730",
        "A voter answers and is far behind the others.";
    EtcdPeerUrlMismatch = "EtcdPeerUrlMismatch", Warn..=Error, "b1efb51133bd41d7ff46a4998306c513",
        "A peer URL is recorded otherwise than its member expects.";
    EtcdUrlUnusable = "EtcdUrlUnusable", Warn..=Error, "dc5bff67698d42b2b06674104a98c894",
        "The member list records a URL that nobody can use.";
    EtcdClusterIdMismatch = "EtcdClusterIdMismatch", Error..=Error, "df5d1fe2fc7f505189a42bb67e2f6956",
        "Members belong to different clusters.";
    EtcdMemberUnstarted = "EtcdMemberUnstarted", Info..=Warn, "f24aabd49a3259f885e8649782cb5b18",
        "A member was added and has never started.";
    EtcdPartitioned = "EtcdPartitioned", Warn..=Error, "2d8f48dbd21c4a9da427b92924bbf0fa",
        "Living members do not reach each other.";
    EtcdClientPortClosed = "EtcdClientPortClosed", Warn..=Warn, "2d83db3cbee849399d49f07e9e80b010",
        "Nodes do not reach the client port of a member that lives.";
    EtcdFailureDomain = "EtcdFailureDomain", Info..=Warn, "7ceefd292c6e42aaa6303b477112d32e",
        "One zone holds so many voters that its loss stops the cluster.";
    EtcdRegionsDiffer = "EtcdRegionsDiffer", Warn..=Warn, "b709d42e3dcade5f2fea105e35676139",
        "Members of one cluster lie in different regions.";
    EtcdVersionsEqual = "EtcdVersionsEqual", Ok..=Ok, "905464d93e15682dd9fc2b639078203e",
        "Every member runs one version of etcd.";
    EtcdVersionSkew = "EtcdVersionSkew", Info..=Error, "b927ae4ac9bd000f2a9eb0b2cef57502",
        "Members run different versions of etcd.";
    EtcdSplitBrain = "EtcdSplitBrain", Error..=Error, "2881026ee05bfffd635e6fe87f0374c7",
        "Two halves of etcd under one cluster id have a leader each and both take writes.";
    EtcdLeadersDisagree = "EtcdLeadersDisagree", Warn..=Warn, "637b9f4366492544f1866c29f1ac9bce",
        "Members see different leaders, or none, at the same time.";
    EtcdSpaceFree = "EtcdSpaceFree", Ok..=Ok, "2b4f30a33bab5fb0bca1a653fc3e86fd",
        "The database has room and no alarm is set.";
    EtcdSpaceLow = "EtcdSpaceLow", Warn..=Error, "333b870f02e15bd6af9905a8b6d5fb8b",
        "The database nears its quota, or the disk below it is nearly full.";
    EtcdNoSpace = "EtcdNoSpace", Error..=Error, "d85e7b34af925be88999412273a2e29b",
        "A NOSPACE alarm stops all writes.";
    EtcdAlarmLeftOver = "EtcdAlarmLeftOver", Error..=Error, "e166767f5df7565baf4028ca5752d289",
        "Space is free again and the NOSPACE alarm is still set.";
    EtcdQuotaUnknown = "EtcdQuotaUnknown", Info..=Warn, "dec206f27ed24555a5ad02881639c98e",
        "The quota is not reported and is not the default.";
    EtcdQuotaOff = "EtcdQuotaOff", Info..=Warn, "70c4490b49074c1fb7e0e30020d7c826",
        "The quota is switched off, so the database grows until the disk is full.";
    EtcdDatabaseLarge = "EtcdDatabaseLarge", Info..=Warn, "48813f6d8d31e966504ca82d182b6cf9",
        "The database is so large that snapshots and defragmentation take long.";
    EtcdCorrupt = "EtcdCorrupt", Error..=Error, "8abc022528b25d978ae7ec541405457c",
        "A CORRUPT alarm is set.";
    EtcdDiskFast = "EtcdDiskFast", Ok..=Ok, "0f10b4beb0bd512387ad6862c0053ee9",
        "fsync is fast enough.";
    EtcdDiskSlow = "EtcdDiskSlow", Warn..=Error, "7d5197c7e31457439fb08ca7ae4e3709",
        "fsync is slow.";
    EtcdDiskUnmeasured = "EtcdDiskUnmeasured", Info..=Warn, "f55c8ee915c95e34a1faebf22bf52f56",
        "Two scrapes do not tell how fast the disk is.";
    EtcdSnapshotsFresh = "EtcdSnapshotsFresh", Ok..=Ok, "205d8d68d95828f741649de26d644733",
        "The newest etcd snapshot is recent.";
    EtcdSnapshotsOnOneNode = "EtcdSnapshotsOnOneNode", Info..=Info, "c3af3687b533337ac8bcaf52e03bcf1a",
        "Every known etcd snapshot lies on one node.";
    EtcdSnapshotsStale = "EtcdSnapshotsStale", Warn..=Warn, "d981ef83eb3eef0b88f1d65f1b24671e",
        "The newest etcd snapshot is too old.";
    EtcdSnapshotsMissing = "EtcdSnapshotsMissing", Warn..=Warn, "f060b143d6e41acaa73cc6f7b325efb3",
        "There is no etcd snapshot.";
    EtcdSnapshotsUnseen = "EtcdSnapshotsUnseen", Warn..=Warn, "c8e9167c2a9c496988dcad834427de1d",
        "No etcd snapshot lies on a node; object storage, where they go, was not looked at.";
    EtcdSnapshotsDisabled = "EtcdSnapshotsDisabled", Info..=Warn, "f43c34525fb135b1e8595aaf65551011",
        "Scheduled etcd snapshots are switched off.";
    CertificatesInDate = "CertificatesInDate", Ok..=Ok, "5dc253e8132a52c7ad01fb148e291b24",
        "Certificates are valid for long enough.";
    CertificateEnding = "CertificateEnding", Info..=Error, "1816a2f2e28a5a60898800366a4b4a61",
        "A certificate ends soon.";
    CertificateExpired = "CertificateExpired", Error..=Error, "3ec358d242ab5c86b03d79d1bdab5bb1",
        "A certificate has ended.";
    CertificateNotYetValid = "CertificateNotYetValid", Error..=Error, "45cc5a4466dd413183bba4a28c279e59",
        "A certificate is not valid yet.";
    CertificateNotServed = "CertificateNotServed", Info..=Error, "7bd017a877da48c280c592f0d6ee7c29",
        "The process serves another certificate than lies on disk.";
    CertificateWrong = "CertificateWrong", Warn..=Error, "c2706c8705524d249dbce81f5913a821",
        "A certificate is not good for this node or this cluster.";
    CertificateKeyMismatch = "CertificateKeyMismatch", Error..=Error, "159d7fb1dfe74aee95007f87be44cd8e",
        "A certificate and the private key beside it are of different pairs.";
    CertificateSignatureWeak = "CertificateSignatureWeak", Warn..=Warn, "29ae986f376244cdb0756ac2f625ca81",
        "A certificate hangs on a signature that etcd and Kubernetes refuse.";
    CertificateUnreadable = "CertificateUnreadable", Warn..=Error, "c45a7df3ec114f6f8e9c4d6bf347666d",
        "A certificate file holds no certificate that can be read.";
    CertificateLeftOver = "CertificateLeftOver", Info..=Info, "3664a94c0847414aae6b188ef96c130f",
        "A certificate file that ends is probably not used any more.";
    CertificateClockUnsure = "CertificateClockUnsure", Warn..=Error, "cdec0268c7fa44e9a03cc1a12454a585",
        "Whether a certificate is in date cannot be told by this clock.";
    CertificateAuthorityEnding = "CertificateAuthorityEnding", Info..=Error, "2232ec4eef3f4af1b8a366cf616b3ccf",
        "A certificate authority ends soon or has ended.";
    CredentialsGood = "CredentialsGood", Ok..=Info, "d71a0cc331e54d62bd4c8b7013e4ef20",
        "The credential is good for long enough.";
    CredentialEnding = "CredentialEnding", Warn..=Error, "f340294b7df845eab6174a19fcae6eef",
        "The credential ends soon.";
    CredentialExpired = "CredentialExpired", Warn..=Error, "46e9c79a2271427d851971233a38c013",
        "The credential has ended.";
    CredentialRefused = "CredentialRefused", Warn..=Error, "f3a7af2f81174d6c88640f5fe4ea32fa",
        "The server does not accept the credential (401).";
    CredentialForbidden = "CredentialForbidden", Warn..=Warn, "47443cef6e5a4a1aa92c23984f640b4f",
        "The credential is valid and lacks a right (403).";
    CredentialGone = "CredentialGone", Warn..=Error, "85ab81105adf444a90e024bcad9350f8",
        "The token of the credential, or what it leads to, is gone.";
    CredentialUnusable = "CredentialUnusable", Warn..=Error, "66101e8800f442019e9a561cc4b2e02b",
        "No client can use the kubeconfig as it is.";
    CredentialWrongKind = "CredentialWrongKind", Warn..=Warn, "b49fab4b54dd4f65bce010e7a5c5e1c9",
        "The credential is of the wrong kind for its place.";
    CredentialShared = "CredentialShared", Warn..=Warn, "7a51a072ea154ebc86d3f694468d77ec",
        "Two credentials hold one token.";
    CredentialTemporary = "CredentialTemporary", Warn..=Error, "ff994258203e45ee8a5653c1ade99418",
        "A temporary key is kept as if it lasted.";
    CredentialEndUnknown = "CredentialEndUnknown", Info..=Info, "6faacca22deb44aa91bcc30b02817953",
        "When the credential ends cannot be told.";
    CredentialClockUnsure = "CredentialClockUnsure", Info..=Error, "9eda42c6d2a244b3976c679eb9387074",
        "Whether the credential has ended cannot be told by this clock.";
    RancherNameAgreed = "RancherNameAgreed", Ok..=Ok, "accaaa5a762b4330a4bf664bbc954d7e",
        "Rancher's server-url, Ingress, load balancer and certificate name one host.";
    RancherNameDiffers = "RancherNameDiffers", Warn..=Error, "9a2d5b9ccf4542718d8f439a6cffb85d",
        "What leads to Rancher goes by another name than server-url.";
    RancherServerUrlUnusable = "RancherServerUrlUnusable", Warn..=Warn, "a39672ad64d24215b17600ce0dbe9bea",
        "Rancher's server-url is not set, or agents cannot use it.";
    RancherClusterAlone = "RancherClusterAlone", Ok..=Ok, "bb5d802aec9645c1be0bc404647fa2e4",
        "Rancher's own cluster runs Rancher and what it needs, and nothing else.";
    RancherClusterShared = "RancherClusterShared", Info..=Warn, "898d1bd103a3411a80301b72c37265c5",
        "Something else lives in Rancher's own cluster.";
    RancherHostContested = "RancherHostContested", Warn..=Warn, "dff3ce488a7c4263949d2804553d915e",
        "Another Ingress or route takes requests for Rancher's host.";
    BalancerAnswers = "BalancerAnswers", Ok..=Ok, "218db78171fd583a969dd30c9663e446",
        "Every address of the balancer accepts connections.";
    BalancerPartlyDown = "BalancerPartlyDown", Error..=Error, "d9b7349ff475532c9b6a35e1942c04e1",
        "Some addresses of the balancer do not accept connections.";
    BalancerDown = "BalancerDown", Error..=Error, "103a28a3279a5e1cae02a63a752b260d",
        "No address of the balancer accepts connections.";
    BalancerGap = "BalancerGap", Info..=Info, "94e6b4a6f79e442e90726c7044fe4848",
        "An address of the balancer was silent for a moment and answers again.";
    BalancerMoved = "BalancerMoved", Info..=Info, "bc3a3af11f6b4f7cac7e6a31468f2845",
        "An address of the balancer has moved to another machine.";
    BalancerContested = "BalancerContested", Warn..=Warn, "de1c703cc21e42caae1609c2d9524d63",
        "More than one machine answers for an address of the balancer.";
    BalancerCertificateWrong = "BalancerCertificateWrong", Warn..=Error, "a868ae074ec95c418701c365b94a9664",
        "The certificate seen at the balancer is not good for its name.";
    BalancerCertificateEnding = "BalancerCertificateEnding", Info..=Error, "147c9a572f615338b5673fccd58d818c",
        "The certificate seen at the balancer ends soon or has ended.";
    ForwardingWorks = "ForwardingWorks", Ok..=Ok, "4a349537db855c04a6c403bbde159372",
        "The balancer forwards to Rancher.";
    RedirectMissing = "RedirectMissing", Warn..=Warn, "aedcdc92f32b52cfb2d94bd953009273",
        "Plain http is not redirected to https.";
    RedirectLoop = "RedirectLoop", Error..=Error, "6bf7eb1e4e1b5848a0f58ef1c5e0a856",
        "https redirects to itself.";
    ForwardedHeaderIgnored = "ForwardedHeaderIgnored", Warn..=Error, "3c5ee2b898e45c3087ded98195c09d10",
        "The ingress does not trust X-Forwarded-Proto.";
    ForwardedHeaderMissing = "ForwardedHeaderMissing", Error..=Error, "209b2a7cb929524da2185de42f32230e",
        "The balancer does not send X-Forwarded-Proto.";
    HostNotRouted = "HostNotRouted", Error..=Error, "43937bca8e6d56d58d0b31c0fb34c7e0",
        "No ingress matches the Rancher host; a default backend answers.";
    BackendDown = "BackendDown", Warn..=Error, "2c03da24157e5c4f984fac7bd0036c43",
        "A backend does not answer.";
    DeadBackendInUse = "DeadBackendInUse", Error..=Error, "6835cca7d3585b518db37aa3be8543d1",
        "A backend is down and the balancer still uses it.";
    PathsWork = "PathsWork", Ok..=Info, "7f31bcf06be14ff28a82708267989afc",
        "The tries of all nodes at the balancer come through.";
    PathsUntried = "PathsUntried", Info..=Info, "e4982e770b29446d9ca50065e376a7ed",
        "No node's try at the balancer has told anything yet.";
    PathHairpin = "PathHairpin", Error..=Error, "80205ff880c14bdaa6e2e40b1abdc53c",
        "A node behind the balancer does not reach itself through it.";
    PathOfOneNode = "PathOfOneNode", Error..=Error, "5ce52e8d4cba46319d86bbe31c14986e",
        "One node does not reach the balancer and others do.";
    PathBlockedOutside = "PathBlockedOutside", Error..=Error, "99f2e8015b6141379977818750757603",
        "No node of one network reaches the balancer, and nodes of others do.";
    PathFaultUnclear = "PathFaultUnclear", Error..=Error, "fd452f9be1cb4c068e0b7d7751080838",
        "Tries at the balancer fail, and too few were made to say whose fault it is.";
    NotRancher = "NotRancher", Warn..=Error, "9b1f2c4158df536f82fe14365913446a",
        "What answers behind the balancer is not Rancher.";
    BackendError = "BackendError", Error..=Error, "54dea7172d9f524db63b52890c1b9d1b",
        "The balancer answers with a server error or not at all.";
    BalancerRefusesRequest = "BalancerRefusesRequest", Error..=Error, "e4846ef439074b2d8e536bdc8226e0ac",
        "The way in refuses a plain request (4xx).";
    BalancerChainIncomplete = "BalancerChainIncomplete", Warn..=Warn, "565c8bca6fca4d0882925fe237ec5554",
        "The server does not send the whole chain: an intermediate certificate is missing.";
    BalancerCaUnknown = "BalancerCaUnknown", Warn..=Warn, "cdf7c21986414d818d831d16dfbbe44e",
        "The chain leads to an authority that is not known to this machine.";
    BalancerModeDiffers = "BalancerModeDiffers", Warn..=Warn, "f6215eb080d640f7be308b9f49ea68e3",
        "The balancer works at another layer than the configuration says.";
    ForwardedHeaderFirstOnly = "ForwardedHeaderFirstOnly", Error..=Error, "9c72909ca4984ad48e2a595d679619ad",
        "X-Forwarded-Proto is set on the first request of a connection only.";
    ForwardedAddressWrong = "ForwardedAddressWrong", Error..=Error, "8236c3af71174b2a85b630490c88fab4",
        "Rancher takes itself for another address than the one people use.";
    ForwardedHeaderForged = "ForwardedHeaderForged", Warn..=Warn, "a93b6157d8bd481ab83ff060400570f3",
        "A client's own X-Forwarded headers are believed.";
    ProxyProtocolMissing = "ProxyProtocolMissing", Error..=Error, "5fe7240a7f9a44f9a4ee66a54fb5a44b",
        "A side expects the PROXY protocol and does not get it.";
    ProxyProtocolUnexpected = "ProxyProtocolUnexpected", Error..=Error, "26a06f63cb77454599c81c13e141863a",
        "The balancer sends the PROXY protocol to a side that does not expect it.";
    WebSocketPasses = "WebSocketPasses", Ok..=Ok, "7bfbac3f3b4447679634afcfdcb80cca",
        "WebSockets reach Rancher.";
    WebSocketUnproven = "WebSocketUnproven", Info..=Info, "132cd784511a4e3fad142bf94ee36d92",
        "A WebSocket handshake is refused in words that prove nothing about the upgrade.";
    WebSocketUpgradeLost = "WebSocketUpgradeLost", Error..=Error, "21514fe9ccf3474da619af2523214cd4",
        "The WebSocket upgrade is taken off on the way to Rancher.";
    WebSocketRefused = "WebSocketRefused", Error..=Error, "6b9f9671fa364e328cb6424443b029cf",
        "Something other than Rancher answers the WebSocket handshake.";
    WebSocketFails = "WebSocketFails", Error..=Error, "c35151343dd945419aab3459943dd5b1",
        "The WebSocket handshake ends in a server error or in silence.";
    WebSocketRedirected = "WebSocketRedirected", Error..=Error, "059097189d6a4713b4349b16398bef43",
        "The WebSocket handshake is redirected.";
    WebSocketHttp2Differs = "WebSocketHttp2Differs", Warn..=Warn, "d051d6cded67401f8d065d143dfe36e7",
        "WebSockets pass over HTTP/1.1 and not over HTTP/2.";
    WebSocketCutIdle = "WebSocketCutIdle", Warn..=Error, "53a074a6676c43aab2942f3a7bceb570",
        "A WebSocket in which nothing is said is cut earlier than Rancher's shells need.";
    CaTrusted = "CaTrusted", Ok..=Ok, "4d90d2b6f2e041119b4a956953df6db8",
        "Agents can trust Rancher by what it publishes.";
    CaChecksumMismatch = "CaChecksumMismatch", Error..=Error, "183df943882b48fd8f03a40d81bac490",
        "The given CA checksum is not that of /cacerts.";
    CaChecksumMalformed = "CaChecksumMalformed", Error..=Error, "2a80247fd7e943b8a3e36dd9faa9e7a9",
        "The given CA checksum can be no SHA-256.";
    CaCertsEmpty = "CaCertsEmpty", Warn..=Error, "a0b0d84642e441d7b33bb4c40d2c7d07",
        "/cacerts is empty where agents need it.";
    CaCertsNotPem = "CaCertsNotPem", Error..=Error, "37c8a0ea7b3942e1b7ca5e9c75ea189d",
        "/cacerts gives something that is no certificate.";
    CaCertsDiffer = "CaCertsDiffer", Error..=Error, "642075ea8e1943e7bc0f1d9b7a61848c",
        "Peers behind one name publish different CAs.";
    CaChainMismatch = "CaChainMismatch", Warn..=Error, "5b7106630c34492d8d31b59cfad4079f",
        "The certificate does not lead to the CA at /cacerts.";
    CaLeftOver = "CaLeftOver", Info..=Info, "cf033a6f47994944845fa648d99432f9",
        "A CA or checksum is left over that agents do without.";
    KubernetesAnswers = "KubernetesAnswers", Ok..=Ok, "4ca1214bdf8342b8bbabe64cf9b0c764",
        "The kubelet answers, and on a server the API server does.";
    KubeletDown = "KubeletDown", Warn..=Error, "89273602f9fe4555842b811627417c1c",
        "The kubelet does not answer on this node.";
    ApiserverDown = "ApiserverDown", Warn..=Error, "88660414dd3443d6985e5a69dd0602cf",
        "The API server of this node does not answer or is not ready.";
    Rke1EndOfLife = "Rke1EndOfLife", Warn..=Warn, "5340297a05ad48b3bfc3fa77e8a4ef0d",
        "RKE1 runs here; its life ended on 2025-07-31.";
    Rke1Remains = "Rke1Remains", Info..=Info, "cff5a056dfe3412588ef8f0f2aab1e99",
        "Files of an RKE1 lie on a node that runs another Kubernetes.";
    RequirementsMet = "RequirementsMet", Ok..=Ok, "e4a49200a1994c76a71aa5f1ff90bf23",
        "The machine has what the documents ask of it.";
    RequirementsNotMet = "RequirementsNotMet", Info..=Warn, "f821de912cab4591a9b2d60853046ffe",
        "The machine has less than the documents ask of it.";
    NetworkManagerInterferes = "NetworkManagerInterferes", Warn..=Warn, "a0e7a5ce59b642e4b556ff2c8365b154",
        "NetworkManager may change the interfaces and routes of the CNI.";
    FirewallClear = "FirewallClear", Ok..=Ok, "eb1789a704104a3db8150724964a487d",
        "No host firewall is active that systemd knows of.";
    FirewallActive = "FirewallActive", Info..=Warn, "8a0b1fbb5d334b9faccfddb94675d184",
        "A host firewall is active; its rules are not known here.";
    FirewallConflicts = "FirewallConflicts", Warn..=Warn, "d644269b80904f1abcdf428854fd982a",
        "A host firewall is active that conflicts with the cluster's network.";
    NeighboursReached = "NeighboursReached", Ok..=Ok, "375dfedc9028427b854c65db87890cbc",
        "The neighbours that were tried answer on their ports.";
    NeighboursUntested = "NeighboursUntested", Info..=Info, "ffaffc1e57b14eb0943cc46f1e8cbe6c",
        "Too few tries of neighbours to say anything.";
    NeighbourAway = "NeighbourAway", Info..=Warn, "86122cfb51db45f494dfa6484564b3f4",
        "A neighbour answers on none of its ports.";
    NeighbourPortsClosed = "NeighbourPortsClosed", Warn..=Error, "33b2378fc1d64e89b958dab1dc78ddc4",
        "Ports of a neighbour do not answer.";
    OverlayWorks = "OverlayWorks", Ok..=Ok, "ba5565835a314b5f91ce85feedc33bab",
        "The overlay network carries full packets to the neighbours that were tried.";
    OverlayBlocked = "OverlayBlocked", Warn..=Error, "d76879838bf8414d942556b478adeea1",
        "The overlay network does not carry packets to a neighbour whose own address answers.";
    PathBlackHole = "PathBlackHole", Warn..=Error, "ed5523a175724e3cb62bc4e07016cc61",
        "Small packets reach a neighbour and large ones do not.";
    OverlayMtuTooLarge = "OverlayMtuTooLarge", Warn..=Warn, "f46e4cebc2244a14990221d3d0c8c898",
        "The overlay's MTU leaves no room for its own headers.";
    OverlayMtuDiffers = "OverlayMtuDiffers", Warn..=Warn, "52a4f487334247b18482d89400519b58",
        "Nodes of one cluster have overlay interfaces of different MTU.";
    NamesResolve = "NamesResolve", Ok..=Ok, "49660fb8eb3c416a87d8393663552602",
        "The names this node depends on resolve, everywhere alike.";
    DnsServerDown = "DnsServerDown", Info..=Error, "3ee909cdb7dd498e9726f91ecd72577d",
        "A DNS server does not answer.";
    DnsServerFailing = "DnsServerFailing", Info..=Error, "470e631d19a845dd90994499801ad41f",
        "A DNS server answers and does not serve the question (SERVFAIL, REFUSED).";
    DnsAnswersDiffer = "DnsAnswersDiffer", Info..=Error, "040aa02d651b41d387b752276a0484d5",
        "Not everybody is told the same of a name.";
    NameOnlyOnHost = "NameOnlyOnHost", Warn..=Error, "82b53d69ff1f471cb06778644a9b5b5a",
        "The name resolves on this host and at no DNS server.";
    NameIsLoopback = "NameIsLoopback", Error..=Error, "f60853db09644ca49b5ebafc15a4fbfe",
        "The name leads back to the machine that asks.";
    NameIsThisNode = "NameIsThisNode", Info..=Error, "6aa7bf8f213848b0b52081ad4c2a8239",
        "The name leads to this node alone.";
    SearchDomainWildcard = "SearchDomainWildcard", Info..=Error, "5255b3680f20475caf03a777588d03b0",
        "A search domain behind the name gives another address.";
    DnsAnswersEverything = "DnsAnswersEverything", Warn..=Warn, "9699ae25a70848cbb0e00bb7341c6a3c",
        "A DNS server gives addresses for names that cannot exist.";
    AddressUnroutable = "AddressUnroutable", Info..=Error, "1deb369510f541408d7638f273fa01bb",
        "There is no route to an address of the name.";
    PodResolverUnfit = "PodResolverUnfit", Warn..=Error, "a553499ea45e407aa8b1b3c4305e3704",
        "The resolver configuration that pods are given is not good for them.";
    DnsServersIgnored = "DnsServersIgnored", Info..=Warn, "52dc5a8b1bb84f93bc8962b433cfd1ac",
        "Part of the resolver configuration has no effect.";
    DnsAliasBroken = "DnsAliasBroken", Error..=Error, "130f9c410c3c433d999e06ce1d1eda00",
        "The name is an alias that leads nowhere.";
    DnsAnswerTruncated = "DnsAnswerTruncated", Warn..=Error, "e237c924226748569416e898c04fbfc8",
        "The answer is too long for UDP and does not come over TCP.";
    DnsFamiliesDisagree = "DnsFamiliesDisagree", Warn..=Warn, "739b709b97644259942b3d1613376e35",
        "A DNS server contradicts itself on IPv4 and IPv6 of one name.";
    RancherAgentRunning = "RancherAgentRunning", Ok..=Ok, "090c2ad917ca40bcb1016cc9a3eef6a1",
        "rancher-system-agent runs.";
    RancherAgentStopped = "RancherAgentStopped", Warn..=Error, "24fa1394097d4f2390ffc573904e108a",
        "rancher-system-agent does not run.";
    RancherAgentRestarting = "RancherAgentRestarting", Warn..=Error, "882b71978b7a412284c5ca5042e0d05f",
        "rancher-system-agent is restarted again and again.";
    RancherAgentConnected = "RancherAgentConnected", Ok..=Ok, "a00f031ae7bb417abd79a6b80c6f3f74",
        "rancher-system-agent's files are as it wants them.";
    RancherAgentFilesRefused = "RancherAgentFilesRefused", Warn..=Error, "c093552f25d146b09363450b13261f04",
        "rancher-system-agent refuses a file for its mode or owner.";
    RancherAgentUnconnected = "RancherAgentUnconnected", Warn..=Error, "7e23045d92a64515b18a483e27cf4ba2",
        "rancher-system-agent has nothing that says where Rancher is.";
    RancherAgentCaUnfit = "RancherAgentCaUnfit", Info..=Error, "44a816d3db7e453b907715610362972f",
        "What rancher-system-agent trusts is not good for its server.";
    RancherAgentPlanStuck = "RancherAgentPlanStuck", Warn..=Warn, "49042c498c8b424d9c224c0c5af06ad0",
        "A plan, or a restart of rancher-system-agent, is held up.";
    ProxyFits = "ProxyFits", Ok..=Ok, "d54ad498bd234a81a4d597591984d3de",
        "No proxy is set, or it leads around the cluster.";
    ProxyUnusable = "ProxyUnusable", Warn..=Error, "49a545e355a74a25adf856e001a9754d",
        "A proxy variable cannot be used as it is written.";
    NoProxyIncomplete = "NoProxyIncomplete", Info..=Warn, "0feedd8f05034fda94d36bc27458afac",
        "NO_PROXY leaves out what has to be reached without a proxy.";
    NoProxyAmbiguous = "NoProxyAmbiguous", Warn..=Warn, "d49b92ca786b42578f3e0055b51b2453",
        "Programs read the proxy variables differently.";
    ProxyNotInEffect = "ProxyNotInEffect", Warn..=Warn, "849d4e0136e94e8ab7e505be84876ead",
        "The running process does not have the proxy variables as they are written.";
    TopologyMatches = "TopologyMatches", Ok..=Ok, "0953795a061641d4b356b85014565d86",
        "Region and zone of the own Node are what their source says.";
    TopologyUnmanaged = "TopologyUnmanaged", Ok..=Ok, "7d93d0dbcb8e4ef3a752e84e9fb62f9c",
        "No source here speaks of the own Node's region and zone; its labels are left alone.";
    TopologyDiffers = "TopologyDiffers", Warn..=Warn, "cf79d36210dd47d5906870178ae7d615",
        "Labels of region or zone are not what their source says, and are only compared here.";
    TopologyWriting = "TopologyWriting", Info..=Info, "22e634aa1b3f4cd89a6631e710790f3f",
        "Labels of region or zone are about to be written.";
    TopologyOwnedByOther = "TopologyOwnedByOther", Warn..=Warn, "b340ead8ce2f463697b1e2d75180e419",
        "Another field manager owns a label that should be another; it is left as it is.";
    TopologyFight = "TopologyFight", Error..=Error, "efa221b3aea54b9a9152c29099987a0c",
        "Somebody changes our label back again and again; we have stopped writing it.";
    TopologyValueInvalid = "TopologyValueInvalid", Warn..=Warn, "7183395a682848569be3107e6cbf4dab",
        "The region or zone that the source names can be no label; nothing was sent.";
    TopologyBetaDiffers = "TopologyBetaDiffers", Warn..=Warn, "657c9d5398bf4e5e8ffc1e1d33c939ba",
        "The old beta label differs from the label, and a cloud controller takes its value over.";
    TopologySourcesDisagree = "TopologySourcesDisagree", Warn..=Warn, "392a91f3a9d74e5cb7d667a4c6867b86",
        "Two sources name different regions or zones for this machine.";
    TopologyNotRemoved = "TopologyNotRemoved", Warn..=Warn, "2ec56d778d8b452f9bdf2a775fe25ef7",
        "The source has no such label, and the Node has one that Outrider did not set.";
    TopologyReasserted = "TopologyReasserted", Warn..=Warn, "4362d77c9679402d850f83be829f820a",
        "The configuration of RKE2 or K3s gives the kubelet another label, which it writes at every start.";
    TopologyMachineUnmatched = "TopologyMachineUnmatched", Warn..=Warn, "39e43dabaa57487f9a4a21963dfdd490",
        "Which virtual machine this node is cannot be told; nothing is changed.";
    TopologyStale = "TopologyStale", Info..=Info, "1b6ab8d144f44526bcc24d5cc08411f4",
        "No host speaks for the virtual machine now; the labels stay and may be old.";
    TopologyWriteRefused = "TopologyWriteRefused", Warn..=Error, "d6fa766c3fb442cf83aad8a429ced1d1",
        "The API server did not take our labels.";
    TopologyKept = "TopologyKept", Warn..=Warn, "702b2508804944008922d6ad0e5d30a9",
        "In strict mode a Node that has a region or zone keeps it.";
    TopologyNodeMissing = "TopologyNodeMissing", Warn..=Warn, "d56f4766c5b04af58991f04a27b583f7",
        "The cluster has no Node of this machine's name.";
    NodeInitialized = "NodeInitialized", Ok..=Ok, "91782b58d9634ee887681b2477175353",
        "The own Node does not wait for a cloud provider.";
    NodeUninitialized = "NodeUninitialized", Info..=Error, "0b01a0c2f93544ed86516ea9079061b2",
        "The own Node waits for a cloud provider to initialise it.";
}

impl ReasonCode {
    /// The registry's entry; `None` for a word of a later version.
    pub fn info(&self) -> Option<&'static ReasonInfo> {
        REASONS.iter().find(|info| info.code == self.as_str())
    }
}

impl From<&crate::UnknownCause> for ReasonCode {
    /// The causes of `Unknown` are reasons by the same word.
    fn from(cause: &crate::UnknownCause) -> Self {
        ReasonCode::from(cause.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn message_ids_are_unique_and_well_formed() {
        let ids: BTreeSet<_> = REASONS.iter().map(|r| r.message_id).collect();
        assert_eq!(ids.len(), REASONS.len());
        assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
    }

    #[test]
    fn every_cause_of_unknown_is_a_reason() {
        for cause in crate::UnknownCause::ALL {
            assert!(ReasonCode::from(cause).info().is_some(), "{cause} is no reason code");
        }
    }

    #[test]
    fn severity_ranges_are_ranges() {
        for r in REASONS {
            assert!(r.severities.0 <= r.severities.1, "{}", r.code);
        }
    }

    #[test]
    fn every_code_has_a_runbook_and_every_runbook_a_code() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks");
        let written: BTreeSet<String> = std::fs::read_dir(&folder)
            .expect("docs/runbooks")
            .filter_map(|e| e.ok()?.file_name().into_string().ok()?.strip_suffix(".md").map(str::to_owned))
            .filter(|name| name != "README")
            .collect();
        let known: BTreeSet<String> = REASONS.iter().map(|r| r.code.to_owned()).collect();
        assert_eq!(written, known, "left: runbooks, right: codes");
    }
}
