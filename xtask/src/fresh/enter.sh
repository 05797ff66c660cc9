# Enters a root directory as a machine of its own, in a mount and a host name namespace that are already private.
# Not in a pid namespace: a fresh machine has none, and the kernel's records name processes by their number in the first one.
set -eu
root=$1 toolchain=$2 place=$3
shift 3
# Only a mount point can become the root. Not chroot(8): whoever lives in one may not make user namespaces.
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
