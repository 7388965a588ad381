package machine

// A Spec describes a machine.
type Spec struct {
	// Hostname is its name.
	Hostname string
	// Binds are files and folders of this machine that it sees, read-only, by where it sees them.
	Binds map[string]string
	// Addresses of its interface eth0, each with its prefix length, as 10.89.0.2/24. The other end
	// of the link is nowhere.
	Addresses []string
	// Routes are networks that lead to eth0, as 10.96.0.0/16: without a route nobody could send to
	// an address that is translated.
	Routes []string
	// Services are what init runs, from the first boot on.
	Services []Service
	// Env are the environment of services and commands.
	Env []string
}

// A Service is a program that runs as long as it should: init starts it again when it ends.
type Service struct {
	Name string
	Argv []string
	// After is a socket that must take connections before the service starts, as unix:/run/x.sock
	// or tcp:127.0.0.1:80. Empty: none.
	After string
}

// Files of a machine in its folder.
const (
	// LogDir has a file name.log for each service, and one each of the keeper and init.
	LogDir  = "log"
	rootDir = "root"
	// lockFile is locked as long as the keeper or init runs, as the descriptor lockFD of both.
	lockFile = "lock"
	lockFD   = 3
)

// prefix begins the names of all the machines' folders and cgroups.
const prefix = "sluice-e2e-"
