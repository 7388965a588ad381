package injection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// The URLs of istiod in its own network namespace.
const (
	readyURL   = "http://127.0.0.1:8080/ready"
	webhookURL = "https://127.0.0.1:15017/inject"
)

// startTimeout is the time limit for istiod's start, which usually takes one or two seconds.
const startTimeout = time.Minute

// Istiod is a running istiod. Its methods are safe for concurrent use.
type Istiod struct {
	dir    string // contains kubeconfig and log
	log    string // path of the log
	ns     *netns.NS
	api    *apiServer
	server *http.Server
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	client *http.Client
	host   string // the host name in the webhook's certificate
}

// Start runs istiod with the chart's configuration in a new network namespace, and returns when
// istiod is ready to inject. istiod's API server has the given namespaces and one node. Start
// requires root. The caller must call Close.
func Start(
	ctx context.Context, tools Tools, in Installation, namespaces ...corev1.Namespace,
) (*Istiod, error) {
	i := &Istiod{
		api: &apiServer{}, exited: make(chan struct{}),
		host: "istiod" + in.suffix() + "." + systemNamespace + ".svc",
	}
	err := i.start(ctx, tools, in, namespaces)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start istiod %+v: %w", in, err), i.Close())
	}
	return i, nil
}

// start creates the fake cluster, starts istiod, and returns when istiod is ready.
func (i *Istiod) start(
	ctx context.Context, tools Tools, in Installation, namespaces []corev1.Namespace,
) error {
	objects, err := tools.render(in)
	if err != nil {
		return err
	}
	p, err := newControlPlane(objects)
	if err != nil {
		return err
	}
	if err := i.createObjects(p, namespaces); err != nil {
		return err
	}
	if err := i.startAPIServer(); err != nil {
		return err
	}
	if err := i.run(tools.Discovery, p.discovery); err != nil {
		return err
	}
	return i.awaitReady(ctx)
}

// run starts the process with the container's arguments and environment.
func (i *Istiod) run(program string, container corev1.Container) error {
	var err error
	if i.dir, err = os.MkdirTemp("", "istiod-"); err != nil {
		return err
	}
	config := filepath.Join(i.dir, "kubeconfig")
	if err := os.WriteFile(config, []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	i.log = filepath.Join(i.dir, "log")
	log, err := os.Create(i.log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	i.cmd = exec.Command(program,
		append(container.Args, "--kubeconfig", config, "--ctrlz_port", "0")...)
	i.cmd.Dir, i.cmd.Stdout, i.cmd.Stderr = i.dir, log, log
	// The kernel kills istiod if the test is killed. It would also kill istiod when the thread that
	// started it ends. Therefore the goroutine below stays on that thread until istiod exits.
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	i.cmd.Env = []string{
		"POD_NAME=istiod", "POD_NAMESPACE=" + systemNamespace, "SERVICE_ACCOUNT=istiod",
		"HOME=" + i.dir,
	}
	for _, v := range container.Env {
		if v.ValueFrom == nil && v.Name != "KUBECONFIG" {
			i.cmd.Env = append(i.cmd.Env, v.Name+"="+v.Value)
		}
	}
	started := make(chan error, 2) // has space for nil after the start, and for the result of Do
	go func() {
		defer close(i.exited)
		started <- i.ns.Do(func() error {
			if err := i.cmd.Start(); err != nil {
				return err
			}
			started <- nil
			return i.cmd.Wait()
		})
	}()
	return <-started
}

// awaitReady creates the client, waits until istiod reports that it is ready, and makes the client
// trust istiod's CA.
func (i *Istiod) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	i.client = &http.Client{Transport: &http.Transport{DialContext: i.dial}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, readyURL, nil)
		if err != nil {
			return err
		}
		if response, err := i.client.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return i.trustCA()
			}
		}
		select {
		case <-i.exited:
			return fmt.Errorf("istiod exited (%s):\n%s", i.cmd.ProcessState, i.logTail())
		case <-ctx.Done():
			return fmt.Errorf("istiod is not ready: %w:\n%s", ctx.Err(), i.logTail())
		case <-tick.C:
		}
	}
}

// dial connects to an address in istiod's namespace.
func (i *Istiod) dial(_ context.Context, network, address string) (conn net.Conn, err error) {
	err = i.ns.Do(func() error {
		conn, err = net.Dial(network, address)
		return err
	})
	return conn, err
}

// trustCA makes the client trust istiod's self-signed CA. In a cluster, the webhook configuration
// makes the API server trust that CA.
func (i *Istiod) trustCA() error {
	var secret corev1.Secret
	if err := json.Unmarshal(i.api.get(key{"api/v1/secrets", systemNamespace, "istio-ca-secret"}),
		&secret); err != nil {
		return fmt.Errorf("CA certificate of istiod: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca-cert.pem"]) {
		return errors.New("CA certificate of istiod: invalid PEM")
	}
	transport := i.client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: i.host}
	return nil
}

// logTail returns the end of istiod's log.
func (i *Istiod) logTail() string {
	const maxBytes = 4096 // enough to see why istiod failed
	text, err := os.ReadFile(i.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-maxBytes):])
}

// Close stops istiod and removes its files and namespace.
func (i *Istiod) Close() error {
	var errs []error
	if i.cmd != nil && i.cmd.Process != nil {
		errs = append(errs, ignoreDone(i.cmd.Process.Kill()))
		<-i.exited
	}
	if i.server != nil {
		errs = append(errs, i.server.Close())
	}
	errs = append(errs, i.ns.Close())
	if i.dir != "" {
		errs = append(errs, os.RemoveAll(i.dir))
	}
	return errors.Join(errs...)
}

// ignoreDone returns nil if the error says that the process has ended, and otherwise the error.
func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
