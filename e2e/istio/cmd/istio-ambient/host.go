package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"istio.io/istio/cni/pkg/addressset"
	"istio.io/istio/cni/pkg/constants"
	"istio.io/istio/cni/pkg/trafficmanager"
)

// programHost writes the rules of a node. It makes the same calls as the unexported functions
// initMeshDataplane, addPodToHostAddrSet and removePodFromHostAddrSet in istio-cni's package
// nodeagent. Unlike removePodFromHostAddrSet, it continues with the next address after an error.
func programHost(manager trafficmanager.TrafficRuleManager, useNFTables, enableIPv6 bool) error {
	constants.HostMountsPath = os.Getenv("HOST_MOUNTS_PATH")
	set, err := addressset.New(useNFTables, enableIPv6)
	if err != nil {
		return err
	}
	if err := set.Flush(); err != nil {
		return err
	}
	if !useNFTables {
		manager.DeleteHostRules()
	}
	if err := manager.CreateHostRulesForHealthChecks(); err != nil {
		return err
	}
	var errs []error
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		errs = append(errs, changePod(set, strings.Fields(input.Text())))
	}
	return errors.Join(append(errs, input.Err())...)
}

// changePod adds the addresses of a pod to the set or removes them.
func changePod(set addressset.AddressSetManager, words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("%q: want \"add\" or \"remove\", a uid, and addresses", words)
	}
	verb, uid := words[0], words[1]
	var errs []error
	for _, word := range words[2:] {
		a, err := netip.ParseAddr(word)
		switch {
		case err != nil: // invalid address
		case verb == "add":
			err = set.AddIP(a, unix.IPPROTO_TCP, uid, true)
		case verb == "remove":
			var otherUID string
			if otherUID, err = set.ClearEntriesWithIPAndComment(a, uid); otherUID != "" {
				err = fmt.Errorf("remove %s of pod %s: the address belongs to pod %s", a, uid,
					otherUID)
			}
		default:
			err = fmt.Errorf("%q: want \"add\" or \"remove\"", verb)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
