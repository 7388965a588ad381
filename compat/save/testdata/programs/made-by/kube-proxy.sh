# Usage: kube-proxy.sh MODE. MODE is iptables or nftables. Records the rules of kube-proxy. Needs
# ./kube-proxy, ./api (built from kube-proxy-api.go) and kube-proxy-objects.json.
mode=$1
variant=legacy
. ./node.sh
mount -t sysfs sysfs /sys
./api -listen 127.0.0.1:8001 kube-proxy-objects.json 2> api.log &
api=$!
cat > kubeconfig <<'Y'
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:8001"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
Y
cat > kube-proxy.yaml <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $mode
hostnameOverride: node
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
conntrack: {maxPerCore: 0}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection: {kubeconfig: kubeconfig}
Y
./kube-proxy --config kube-proxy.yaml -v 2 2> kube-proxy.log &
proxy=$!
until [ "$(grep -c '"SyncProxyRules complete"' kube-proxy.log)" -ge 2 ]; do sleep 0.2; done
sleep 2
case $mode in
iptables)
	iptables-save > kube-proxy-v4.save
	ip6tables-save > kube-proxy-v6.save
	;;
nftables) nft list ruleset > kube-proxy.nft ;;
esac
kill "$proxy" "$api"
wait || true
