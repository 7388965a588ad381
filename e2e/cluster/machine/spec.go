package machine

import "os"

// A Spec describes a machine.
type Spec struct {
	// Hostname is the machine's host name.
	Hostname string
	// Binds contains files and directories of the host that are mounted read-only. The key is the
	// path in the machine, and the value the path on the host.
	Binds map[string]string
	// Addresses contains the addresses of eth0, each with its prefix length, such as 10.89.0.2/24.
	// The other end of the link is not connected.
	Addresses []string
	// Routes contains the networks that are routed to eth0, such as 10.96.0.0/16. An address that
	// is subject to DNAT also needs a route.
	Routes []string
	// Services contains the services that init runs, from the first boot.
	Services []Service
	// Env is the environment of services and commands.
	Env []string
}

// BindHostPrograms binds /usr of the host, and the files in /etc that its programs need: the
// library cache of the dynamic loader, and /etc/alternatives, to which links in /usr/sbin point.
func (s *Spec) BindHostPrograms() {
	for _, path := range []string{"/usr", "/etc/ld.so.cache", "/etc/alternatives"} {
		if _, err := os.Stat(path); err == nil {
			s.Binds[path] = path
		}
	}
}

// A Service is a program that init restarts when it ends, while the service is enabled.
type Service struct {
	Name string
	Argv []string
	// After is a socket that must accept connections before the service starts, such as
	// unix:/run/x.sock or tcp:127.0.0.1:80. It may be empty.
	After string
}

// Names in a machine's directory.
const (
	// LogDir contains a file name.log for each service, monitor.log and init.log.
	LogDir  = "log"
	rootDir = "root"
	// lockFile is locked from NewDir until the monitor and init have ended; both have it as
	// descriptor lockFD.
	lockFile = "lock"
	lockFD   = 3
)

// namePrefix begins the names of the directories and cgroups of machines.
const namePrefix = "sluice-e2e-"
