package sandbox

import (
	"github.com/sluice-mesh/sluice/nft/netns"
)

// Namespaces opens the network namespaces of all processes of the node, except the node's own and
// this process's. The caller must close them. nodeProc is the /proc directory of the node. The
// error may concern only some processes; the namespaces of the others are returned too.
func Namespaces(nodeProc string) ([]*netns.NS, error) {
	proc := procDir(nodeProc)
	host, err := proc.namespace(firstProcess)
	if err != nil { // the node's network namespace could be mistaken for a sandbox
		return nil, errorIn(Proc, err)
	}
	pids, err := proc.processes()
	if err != nil {
		return nil, errorIn(Proc, err)
	}
	seen := map[netns.ID]bool{host: true, (*netns.NS)(nil).ID(): true}
	var namespaces []*netns.NS
	var errs fileErrors
	for _, pid := range pids {
		switch ns, err := proc.openUnless(seen, pid); {
		case err != nil:
			errs.add(err)
		case ns != nil:
			seen[ns.ID()] = true
			namespaces = append(namespaces, ns)
		}
	}
	return namespaces, errs.in(Proc)
}

// openUnless opens the network namespace of a process, or returns nil if seen contains it.
func (d procDir) openUnless(seen map[netns.ID]bool, pid int) (*netns.NS, error) {
	if id, err := d.namespace(pid); err != nil || seen[id] {
		return nil, err
	}
	ns, err := netns.Open(d.netns(pid))
	if err != nil {
		return nil, err
	}
	if seen[ns.ID()] { // another process has got the process ID
		return nil, ns.Close()
	}
	return ns, nil
}
