# Makes the current network namespace a node of a cluster, with two links and their addresses. Puts
# the iptables programs of $variant (nft or legacy) into the PATH.
set -eu
mkdir -p bin-"$variant"
for program in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
	ln -sf "/usr/sbin/xtables-$variant-multi" "bin-$variant/$program"
done
export PATH=$PWD/bin-$variant:/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
for link in eth0 eth1; do
	ip link add "$link" type veth peer name "peer-$link"
	ip link set "peer-$link" up
	ip link set "$link" up
done
ip addr add 192.168.7.2/24 dev eth0
ip -6 addr add fd00:7::2/64 dev eth0 nodad
ip addr add 10.1.0.1/24 dev eth1
ip route add default via 192.168.7.1
ip -6 route add default via fd00:7::1
