# Records the rules of Cilium. Needs ./cilium.test (built from cilium_test.go).
variant=legacy
. ./node.sh
mount -t sysfs sysfs /sys
ip link add cilium_host type veth peer name cilium_net
ip link set cilium_host up
ip link set cilium_net up
ip addr add 10.244.0.1/32 dev cilium_host
./cilium.test -test.run '^TestInstallRecordedRules$' > cilium.log 2>&1
iptables-save > cilium-v4.save
ip6tables-save > cilium-v6.save
