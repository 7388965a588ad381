// Command kubernetes contains the control plane with etcd, the node's agents, kubeadm and kubectl
// in one program. The name by which it is called, or its first argument, selects one of them. The
// program takes a third of the space of eight separate programs, and is linked once.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata"

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerror "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerror "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"etcd":           func() { etcdmain.Main(os.Args) },
	"kube-apiserver": func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
	"kube-controller-manager": func() {
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	},
	"kube-proxy":     func() { os.Exit(cli.Run(proxy.NewProxyCommand())) },
	"kube-scheduler": func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
	"kubeadm":        func() { kubeadmerror.HandleError(kubeadm.Run()) },
	"kubectl": func() {
		kubectlerror.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
	},
	"kubelet": func() { os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background()))) },
}

func main() {
	program := programs[filepath.Base(os.Args[0])]
	if program == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		program = programs[os.Args[0]]
	}
	if program == nil {
		fmt.Fprintln(os.Stderr,
			"kubernetes: want the name of a program, such as kubelet, as the program's name "+
				"or first argument")
		os.Exit(2)
	}
	program()
}
