# Usage: portmap.sh BACKEND. BACKEND is iptables or nftables. Records the rules of the plugin
# portmap. Needs ./portmap.
backend=$1
variant=nft
. ./node.sh
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
# add NAME IPV4 IPV6 MAPPINGS calls the plugin for a pod with the addresses and the port mappings.
add() {
	ip netns add "$1"
	CNI_COMMAND=ADD CNI_CONTAINERID=$1 CNI_NETNS=/var/run/netns/$1 CNI_IFNAME=eth0 CNI_PATH=. ./portmap > /dev/null <<-C
		{
		  "cniVersion": "1.0.0", "name": "pods", "type": "portmap", "backend": "$backend", "snat": true,
		  "capabilities": {"portMappings": true},
		  "runtimeConfig": {"portMappings": [$4]},
		  "prevResult": {
		    "cniVersion": "1.0.0", "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/var/run/netns/$1"}],
		    "ips": [{"address": "$2/24", "interface": 1}, {"address": "$3/64", "interface": 1}]
		  }
		}
	C
}
add web 10.244.0.2 fd00:10:244::2 '{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
	{"hostPort": 8443, "containerPort": 443, "protocol": "tcp"}'
add dns 10.244.0.3 fd00:10:244::3 '{"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "192.168.7.2"},
	{"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "fd00:7::2"},
	{"hostPort": 53, "containerPort": 53, "protocol": "tcp"}'
case $backend in
iptables)
	iptables-save > portmap-v4.save
	ip6tables-save > portmap-v6.save
	;;
nftables) nft list ruleset > portmap.nft ;;
esac
