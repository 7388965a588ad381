package parameter

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An Invocation is a run of istio-iptables in a pod.
type Invocation struct {
	// Args are the arguments. Words that are neither flags nor values of flags are ignored, so that
	// a container's whole command line can be given.
	Args []string
	// Variable looks up an environment variable, such as os.LookupEnv. Nil means an empty
	// environment.
	Variable func(name string) (value string, found bool)
	// Names find the ids of user and group names.
	Names Names
	// Addresses are the addresses of the pod in the order of its interfaces. Loopback and
	// link-local addresses are ignored. Without other addresses, IPv6 is not captured.
	Addresses []netip.Addr
	// Nameservers are the servers of the pod's resolv.conf. Without nameservers, DNS is captured
	// only if queries to all servers are captured.
	Nameservers []netip.Addr
}

// Redirect returns the redirection that istio-iptables programs, with all deviations of Sluice
// enabled. Flags take precedence over variables, as in istio-iptables.
//
// The error has a line for each unknown flag, and for each invalid value or element of a list, with
// the flag or variable, the value and what is allowed. Unlike istio-iptables, Redirect rejects
// unknown values of Boolean variables and of modes. Flags that have no effect on the rules are
// ignored.
func (in Invocation) Redirect() (rules.Redirect, error) {
	args := ParseArguments(in.Args)
	var errs []error
	for _, name := range args.Unknown {
		errs = append(errs, fmt.Errorf("%q is not a flag of istio-iptables", name))
	}
	if args.MissingValue != "" {
		errs = append(errs, fmt.Errorf("%s: want a value", args.MissingValue))
	}
	v := Defaults()
	sources := map[string]string{} // by field of the Redirect
	parameters := All()
	for i := range parameters {
		p := &parameters[i]
		text, source := in.find(p, args)
		if source == "" {
			continue
		}
		sources[p.Field] = source
		if err := p.Set(&v, text, in.Names); err != nil {
			errs = append(errs, PrefixEachLine(source, err))
		}
	}
	in.complete(&v)
	var faults rules.Faults
	if errors.As(v.Redirect.Validate(), &faults) {
		for _, f := range faults {
			f.Field = cmp.Or(sources[f.Field], f.Field)
			errs = append(errs, errors.New(f.String()))
		}
	}
	if len(errs) > 0 {
		return rules.Redirect{}, errors.Join(errs...)
	}
	return v.Redirect, nil
}

// find returns the value of a parameter and the name of its source. The source is empty if neither
// a flag nor a variable sets the parameter.
func (in Invocation) find(p *Parameter, args Arguments) (text, source string) {
	if text, found := args.Values[p.Flag]; found && p.Flag != "" {
		return text, p.FlagName()
	}
	if in.Variable == nil {
		return "", ""
	}
	return FromEnvironment(p.Variables, p.IsList(), in.Variable)
}

// FromEnvironment returns the value of the last variable that is set, and the description of the
// variable in errors. The source is empty if no variable is set. An empty variable counts as set if
// emptyCounts is true.
func FromEnvironment(
	variables []string, emptyCounts bool, variable func(string) (string, bool),
) (text, source string) {
	for _, name := range slices.Backward(variables) {
		if text, found := variable(name); found && (text != "" || emptyCounts) {
			return text, "environment variable " + name
		}
	}
	return "", ""
}

// complete sets the values that depend on the pod.
func (in Invocation) complete(v *Values) {
	v.IdentifyProxy(in.Names.Users)
	var deciding []netip.Addr
	for _, a := range in.Addresses {
		if rules.DecidesFamily(a) {
			deciding = append(deciding, a.Unmap())
		}
	}
	v.Redirect.IPv6 = rules.CapturesIPv6(deciding, v.DualStack)
	if dns := &v.Redirect.DNS; dns.Capture && !dns.All {
		for _, server := range in.Nameservers {
			dns.Servers = append(dns.Servers, server.Unmap().WithZone(""))
		}
		dns.Capture = len(dns.Servers) > 0
	}
}

// PrefixEachLine puts the source before each line of an error: a list may have several wrong
// elements.
func PrefixEachLine(source string, err error) error {
	lines := strings.Split(err.Error(), "\n")
	return errors.New(source + ": " + strings.Join(lines, "\n"+source+": "))
}
