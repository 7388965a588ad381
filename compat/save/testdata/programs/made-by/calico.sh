# Records the rules and sets of felix. Needs ./felix (built from felix.go) and ipset.
variant=legacy
. ./node.sh
# felix runs iptables-legacy, iptables-legacy-save and iptables-legacy-restore.
for program in iptables iptables-save iptables-restore; do
	ln -sf /usr/sbin/xtables-legacy-multi "bin-legacy/$(echo "$program" | sed s/iptables/iptables-legacy/)"
done
for set in all-ipam-pools masq-ipam-pools all-hosts-net all-vxlan-net this-host s:clients s:secret; do
	ipset create "cali40$set" hash:net
done
ipset create cali40svc:api hash:ip,port
./felix 2> felix.log
iptables-save > calico-v4.save
ipset save > calico.ipset
