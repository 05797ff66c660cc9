//! Offsets of the fields that the probes read in the running kernel.
//!
//! User space finds each [`Field`] in the kernel's BTF and puts the table into the frozen read-only global `OFFSETS` before
//! the programs are loaded: the verifier then sees constants, and each field is one plain load.

/// Offset of a field that this kernel does not have.
pub const ABSENT: u32 = u32::MAX;

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $strukt:literal $path:literal,)*) => {
        /// A field of a kernel structure; the discriminant is its place in `OFFSETS`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Field { $($(#[$doc])* $name,)* }

        impl Field {
            pub const ALL: &[Field] = &[$(Field::$name,)*];
            pub const COUNT: usize = Self::ALL.len();

            /// Structure and path of members, dots between them; anonymous members are not named. An empty path means the
            /// structure's size.
            pub const fn place(self) -> (&'static str, &'static str) {
                match self { $(Field::$name => ($strukt, $path),)* }
            }
        }
    };
}

fields! {
    TaskFlags = "task_struct" "flags",
    TaskPtrace = "task_struct" "ptrace",
    TaskExitCode = "task_struct" "exit_code",
    TaskJobctl = "task_struct" "jobctl",
    TaskPid = "task_struct" "pid",
    TaskTgid = "task_struct" "tgid",
    TaskRealParent = "task_struct" "real_parent",
    TaskGroupLeader = "task_struct" "group_leader",
    TaskThreadPid = "task_struct" "thread_pid",
    TaskStartBoottime = "task_struct" "start_boottime",
    TaskComm = "task_struct" "comm",
    TaskSignal = "task_struct" "signal",
    TaskSighand = "task_struct" "sighand",
    TaskBlocked = "task_struct" "blocked",
    /// What the thread blocks apart from what it waits for in sigtimedwait(2); empty outside that.
    TaskRealBlocked = "task_struct" "real_blocked",
    TaskPending = "task_struct" "pending.signal",
    TaskCgroups = "task_struct" "cgroups",
    TaskFiles = "task_struct" "files",
    FilesTable = "files_struct" "fdt",
    TableMost = "fdtable" "max_fds",
    TableFiles = "fdtable" "fd",
    TableOpen = "fdtable" "open_fds",
    FileInode = "file" "f_inode",
    FilePrivate = "file" "private_data",
    /// From 6.13 on `FileRef` is in its place, whose 0 is one holder.
    FileCount = "file" "f_count",
    FileRef = "file" "f_ref",
    InodeMode = "inode" "i_mode",
    SocketSk = "socket" "sk",
    /// Since 5.14; before it, `TaskOldState`.
    TaskState = "task_struct" "__state",
    TaskOldState = "task_struct" "state",
    SignalLive = "signal_struct" "live",
    SignalSharedPending = "signal_struct" "shared_pending.signal",
    SignalFlags = "signal_struct" "flags",
    SignalGroupExitCode = "signal_struct" "group_exit_code",
    SighandAction = "sighand_struct" "action",
    SigactionHandler = "k_sigaction" "sa.sa_handler",
    SigactionSize = "k_sigaction" "",
    SiginfoCode = "kernel_siginfo" "si_code",
    SiginfoCall = "kernel_siginfo" "_sifields._sigsys._syscall",
    SiginfoArch = "kernel_siginfo" "_sifields._sigsys._arch",
    CssSetDflCgrp = "css_set" "dfl_cgrp",
    CssSetNrTasks = "css_set" "nr_tasks",
    /// An array of pointers, by controller.
    CssSetSubsys = "css_set" "subsys",
    CgroupKn = "cgroup" "kn",
    CgroupRoot = "cgroup" "root",
    CgroupSelfParent = "cgroup" "self.parent",
    CssCgroup = "cgroup_subsys_state" "cgroup",
    CgroupRootHierarchyId = "cgroup_root" "hierarchy_id",
    KernfsNodeId = "kernfs_node" "id",
    PidLevel = "pid" "level",
    PidNumbers = "pid" "numbers",
    UpidSize = "upid" "",
    UpidNr = "upid" "nr",
    UpidNs = "upid" "ns",
    PidNamespaceInum = "pid_namespace" "ns.inum",
    SockFamily = "sock" "__sk_common.skc_family",
    SockState = "sock" "__sk_common.skc_state",
    SockNum = "sock" "__sk_common.skc_num",
    SockDport = "sock" "__sk_common.skc_dport",
    SockDaddr = "sock" "__sk_common.skc_daddr",
    SockRcvSaddr = "sock" "__sk_common.skc_rcv_saddr",
    SockV6Daddr = "sock" "__sk_common.skc_v6_daddr",
    SockV6RcvSaddr = "sock" "__sk_common.skc_v6_rcv_saddr",
    SockNet = "sock" "__sk_common.skc_net.net",
    SockErr = "sock" "sk_err",
    SockProtocol = "sock" "sk_protocol",
    SockSocket = "sock" "sk_socket",
    /// Of a connection that was accepted, the address of its listener.
    UnixAddr = "unix_sock" "addr",
    /// Bits: 1 receiving, 2 sending has ended.
    SockShutdown = "sock" "sk_shutdown",
    /// A plain pointer; early 5.10 has `SockCgroupTagged` in its place.
    SockCgroup = "sock" "sk_cgrp_data.cgroup",
    SockCgroupTagged = "sock" "sk_cgrp_data.val",
    NetInum = "net" "ns.inum",
    /// A random number of the namespace.
    NetHashMix = "net" "hash_mix",
    CsockBindBucket = "inet_connection_sock" "icsk_bind_hash",
    BindBucketReuse = "inet_bind_bucket" "fastreuse",
    InetSport = "tcp_sock" "inet_conn.icsk_inet.inet_sport",
    TcpLastReceived = "tcp_sock" "inet_conn.icsk_ack.lrcvtime",
    TcpLastSent = "tcp_sock" "lsndtime",
    TcpBytesSent = "tcp_sock" "bytes_sent",
    TcpBytesReceived = "tcp_sock" "bytes_received",
    TcpWriteSeq = "tcp_sock" "write_seq",
    TcpSndUna = "tcp_sock" "snd_una",
    TcpSndNxt = "tcp_sock" "snd_nxt",
    TcpRcvNxt = "tcp_sock" "rcv_nxt",
    TcpCopiedSeq = "tcp_sock" "copied_seq",
    TcpDataSegsOut = "tcp_sock" "data_segs_out",
    TcpDataSegsIn = "tcp_sock" "data_segs_in",
    SkbHead = "sk_buff" "head",
    SkbDev = "sk_buff" "dev",
    SkbNetworkHeader = "sk_buff" "network_header",
    SkbTransportHeader = "sk_buff" "transport_header",
    NetDeviceNet = "net_device" "nd_net.net",
}
