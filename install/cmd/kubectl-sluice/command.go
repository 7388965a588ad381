package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const longHelp = `Run the command rules for pods, in the node agents of their nodes, with your own permissions.

POD is NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME, where KIND is deployment, statefulset, daemonset, replicaset,
job or cronjob and selects all running pods of the object. The default namespace is --namespace, or the namespace of the
current context. With --selector, POD is omitted. Flags after POD are flags of rules VERB; "kubectl sluice VERB POD --help"
describes them.

Required permissions: get and list pods (and get the kinds above) in the namespaces of the pods; list pods and create
pods/exec in the namespace of the node agents; for status also list nodes.

The exit code is the exit code of rules VERB, the highest one of several pods. It is 2 for an invalid command line or a
missing pod, and 3 if the API server or a node agent is unreachable or denies access.`

const examples = `  kubectl sluice trace shop/web --out --for 1m
  kubectl sluice explain deployment/web -n shop "out tcp 10.0.0.7:40000 > 10.96.0.1:443"
  kubectl sluice check -n shop -l app=web
  kubectl logs web -c istio-init | kubectl sluice diff web --istio-log -
  kubectl sluice status --watch`

// options are the options of all commands.
type options struct {
	streams        genericiooptions.IOStreams
	config         *genericclioptions.ConfigFlags
	agentNamespace string
	agentSelector  string
	selector       string
	// foundNamespace is the namespace in which node agents were found, or empty. agentSearch guards
	// it.
	foundNamespace string
	agentSearch    sync.Mutex
	// releaseSignals stops handling signals, so that the next one ends the process.
	releaseSignals func()
	// asJSON is set if errors are printed as JSON.
	asJSON bool
	// flagFaults contains the errors of wrong values of flags of kubectl sluice itself.
	flagFaults []error
	// started is set when a command runs. Earlier errors are errors of the command line.
	started bool
}

// agentContainer is the name of the node agent's container, whose image contains the rules command.
const agentContainer = "sluice-node"

func newCommand(
	streams genericiooptions.IOStreams, releaseSignals func(),
) (*options, *cobra.Command) {
	o := &options{
		streams: streams, config: genericclioptions.NewConfigFlags(true),
		releaseSignals: releaseSignals,
	}
	root := &cobra.Command{
		Use: "kubectl-sluice", Version: version,
		Short: "inspect the traffic redirection of mesh pods", Long: longHelp, Example: examples,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sluice"},
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			o.started = true
			return errors.Join(o.flagFaults...)
		},
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags := root.PersistentFlags()
	o.config.AddFlags(flags)
	flags.StringVar(&o.agentNamespace, "agent-namespace", "",
		"namespace of the node agents [default: istio-system or, if it has none, "+
			"the only namespace with pods that have their labels]")
	flags.StringVar(&o.agentSelector, "agent-selector", "k8s-app=sluice-node",
		"label selector of the node agents' pods")
	flags.StringVarP(&o.selector, "selector", "l", "", "label selector of the pods, instead of POD")
	o.check(flags)
	for _, v := range []struct{ name, short string }{
		{"trace", "print connections of pods as they happen, with the deciding rule"},
		{"explain", "follow a packet through the rules of pods"},
		{"check", "report whether pods have exactly the desired rules"},
		{"diff", "decide whether a ruleset and a pod's rules treat every packet alike"},
		{"show", "print the ruleset of pods"},
		{"doctor", "diagnose pods: kernel, permissions, settings, foreign rules"},
	} {
		root.AddCommand(o.newVerb(v.name, v.short))
	}
	root.AddCommand(o.newStatus(), newSchemaTopic())
	rejectUnknownNames(root)
	for name, complete := range o.flagCompletions() {
		if err := root.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // the flag exists
		}
	}
	return o, root
}

// rejectUnknownNames makes the commands help and completion fail for an unknown topic or shell. By
// default they print help, and succeed.
func rejectUnknownNames(root *cobra.Command) {
	unknown := func(parent *cobra.Command, name string) error {
		return commandLineError(fmt.Errorf("unknown command %q for %q", name, parent.CommandPath()))
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.PreRunE = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				switch {
				case err != nil:
					return commandLineError(err)
				case len(rest) > 0:
					return unknown(found, rest[0])
				}
				return nil
			}
		case "completion":
			c.Args, c.DisableFlagsInUseLine = cobra.ArbitraryArgs, true
			c.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return unknown(cmd, args[0])
				}
				return cmd.Help()
			}
		}
	}
}

// newVerb returns a command that runs rules VERB in the node agents.
func (o *options) newVerb(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " POD [FLAG OF RULES]...", Short: short,
		// Flags after POD are passed to rules.
		DisableFlagParsing: true,
		ValidArgsFunction:  o.completeVerb,
		RunE: func(cmd *cobra.Command, args []string) error {
			own, rest, err := split(cmd, args)
			if err != nil {
				return err
			}
			if slices.Contains(own, "-h") || slices.Contains(own, "--help") {
				return cmd.Help()
			}
			if err := cmd.Root().PersistentFlags().Parse(own); err != nil {
				return inputError{err}
			}
			target := ""
			if o.selector == "" {
				if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
					return badInput("%s: POD or --selector is required", verb)
				}
				target, rest = rest[0], rest[1:]
			}
			return o.runVerb(cmd.Context(), verb, target, rest)
		},
	}
}

// split separates the flags of kubectl sluice from the other arguments. Before POD, all flags
// belong to kubectl sluice. After POD, only the flags in anywhere belong to kubectl sluice: users
// write them anywhere, and rules does not have them. All arguments after -- belong to rules.
func split(cmd *cobra.Command, args []string) (own, rest []string, err error) {
	flags := cmd.Root().PersistentFlags()
	anywhere := map[string]bool{
		"namespace": true, "n": true, "context": true, "kubeconfig": true, "selector": true,
		"l": true, "agent-namespace": true,
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			return own, append(rest, args[i+1:]...), nil
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			rest = append(rest, a)
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !strings.HasPrefix(a, "--") && len(name) > 1 && flags.ShorthandLookup(name[:1]) != nil {
			name, hasValue = name[:1], true // as in -nshop
		}
		if len(rest) > 0 && !anywhere[name] {
			rest = append(rest, a)
			continue
		}
		flag := flags.Lookup(name)
		if flag == nil && len(name) == 1 {
			flag = flags.ShorthandLookup(name)
		}
		own = append(own, a)
		switch {
		case a == "-h" || a == "--help":
		case flag == nil:
			return nil, nil, badInput("unknown flag %s before POD: flags of rules %s follow POD, "+
				"or -- with --selector", a, cmd.Name())
		case !hasValue && flag.NoOptDefVal == "":
			if i++; i == len(args) {
				return nil, nil, badInput("flag %s needs a value", a)
			}
			own = append(own, args[i])
		}
	}
	return own, rest, nil
}
