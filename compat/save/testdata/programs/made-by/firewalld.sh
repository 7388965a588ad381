# Usage: firewalld.sh BACKEND. BACKEND is nftables or iptables. Records the rules of firewalld.
# Needs its own root file system with dbus and firewalld.
backend=$1
variant=nft
. ./node.sh
mkdir -p /run/dbus
sed -i "s/^FirewallBackend=.*/FirewallBackend=$backend/" /etc/firewalld/firewalld.conf
dbus-daemon --system --nofork --nopidfile 2> dbus.log &
bus=$!
until [ -S /run/dbus/system_bus_socket ]; do sleep 0.2; done
firewalld --nofork --nopid 2> firewalld.log &
daemon=$!
until firewall-cmd --state > /dev/null 2>&1; do sleep 0.5; done
firewall-cmd --zone=public --change-interface=eth0
firewall-cmd --zone=internal --change-interface=eth1
firewall-cmd --zone=trusted --add-source=10.9.0.0/16
firewall-cmd --zone=public --add-service=http --add-service=https
firewall-cmd --zone=public --add-port=9090/tcp --add-port=6000-6010/udp
firewall-cmd --zone=public --add-masquerade
firewall-cmd --zone=public --add-forward-port=port=8080:proto=tcp:toport=80
firewall-cmd --zone=public --add-forward-port=port=8443:proto=tcp:toport=443:toaddr=10.1.0.9
firewall-cmd --zone=public --add-icmp-block=redirect
firewall-cmd --zone=public --add-rich-rule='rule family="ipv4" source address="198.51.100.0/24" service name="ssh" log prefix="ssh " '\
'level="notice" limit value="3/m" accept'
firewall-cmd --zone=public --add-rich-rule='rule family="ipv4" source address="203.0.113.7" reject'
firewall-cmd --zone=public --add-rich-rule='rule family="ipv6" source address="2001:db8::/32" port port="22" protocol="tcp" drop'
firewall-cmd --zone=public --add-rich-rule='rule family="ipv4" destination address="192.168.7.2" forward-port port="2222" protocol="tcp" to-port="22" '\
'to-addr="10.1.0.9"'
case $backend in
nftables) nft list ruleset > firewalld.nft ;;
iptables)
	iptables-save > firewalld-v4.save
	ip6tables-save > firewalld-v6.save
	;;
esac
kill "$daemon" "$bus"
wait || true
