module github.com/sluice-mesh/sluice/e2e

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/sluice-mesh/sluice v0.0.0-00010101000000-000000000000
	github.com/spf13/pflag v1.0.10
	github.com/vishvananda/netlink v1.3.1
	go4.org/netipx v0.0.0-20260823151212-3075585bcbeb
	golang.org/x/sys v0.49.0
	istio.io/istio v0.0.0-20260827124520-eed52ebb66ad
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/containernetworking/plugins v1.9.1 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/miekg/dns v1.1.72 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/mod v0.37.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/tools v0.47.0 // indirect
	google.golang.org/grpc v1.82.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	sigs.k8s.io/knftables v0.0.21 // indirect
)

replace github.com/sluice-mesh/sluice => ..
