#!/bin/busybox sh
# The first process of the initramfs of a virtual machine. It boots the system on the disk. At the
# first boot, it copies /files to the disk. Machines that start with the same disk image can thereby
# have different files.
set -eu

# copy_files copies the files below $1 to $2, and replaces existing files.
copy_files() {
	(cd "$1" && find . ! -type d) | while read -r file; do
		mkdir -p "$2/${file%/*}"
		rm -f "$2/$file"
		cp -d "$1/$file" "$2/$file"
	done
}

boot() {
	mkdir -p /proc /root
	mount -t proc proc /proc
	mount -t devtmpfs dev /dev
	xzcat /virtio_blk.ko.xz >/virtio_blk.ko
	insmod /virtio_blk.ko
	tries=0
	until mount -t ext4 -o noatime /dev/vda /root; do
		tries=$((tries + 1))
		[ $tries -lt 30 ]
		sleep 1
	done
	if [ ! -e /root/var/lib/files-copied ]; then
		copy_files /files /root
		: >/root/var/lib/files-copied
	fi
	mount --move /dev /root/dev
	umount /proc
	exec switch_root /root /sbin/init
}

/bin/busybox --install -s /bin
export PATH=/bin
trap 'echo "init: failed"; poweroff -f' EXIT
boot
