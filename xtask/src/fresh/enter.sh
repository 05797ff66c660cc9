# Runs a command in a root directory. The caller made the mount and UTS namespaces.
# No pid namespace: the probes report pids of the initial one, and the agent must find them in /proc.
set -eu
root=$1 toolchain=$2 place=$3
shift 3
# pivot_root(8) requires a mount point. Not chroot(8): the kernel refuses user namespaces in a chroot.
mount --bind "$root" "$root"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$toolchain" "$root$place"
mount -o remount,bind,ro "$root$place"
echo fresh >/proc/sys/kernel/hostname
cd "$root"
pivot_root . mnt
cd /root/epitaph
umount -l /mnt
exec "$@"
