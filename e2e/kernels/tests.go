package kernels

import (
	"fmt"
	"strings"
)

// testPackages contains the directories of the packages whose tests run.
var testPackages = []string{"nft", "nft/trace", "compat"}

// A testSet is a set of tests of a package.
type testSet struct {
	pkg string
	// nft and legacy are true if the tests need the backend.
	nft, legacy bool
	tests       []string
}

// testSets contains the tests whose result depends on the kernel: tests with traffic, and tests of
// messages that the kernel accepts, rejects and sends. It excludes tests that do not use the
// kernel, tests with a thousand repetitions, and comparisons with specific versions of programs.
var testSets = []testSet{
	{pkg: "nft", nft: true, tests: []string{
		"TestThisKernelSupportsAllFeatures",
		"TestProbeChangesNothingAndLeaksNothing",
		"TestIntervalsOfEveryKindAreReadAsTheyWereApplied",
		"TestAChangeOfSomePrefixesUpdatesTheSetInPlace",
		"TestAReplacementKeepsTheChainsThatStayAttached",
		"TestRejectionNamesTheRejectedObjectAndChangesNothing",
		"TestIPv6RulesFailInANamespaceWithoutIPv6",
		"TestApplyInAnotherUserNamespace",
		"TestWithoutNetAdminEveryOperationFails",
		"TestApplyRepairsRoutesOfEqualRules",
		"TestIstiosTablesAreKnownToTheModel",
		"TestForeignTablesStayUnchanged",
		"TestKeepEstablishedDoesNotCaptureOlderConnections",
		"TestTrafficOfASidecar",
		"TestTrafficDNS",
		"TestTrafficDropInvalid",
		"TestTrafficInUserNamespace",
		"TestTrafficWithoutListeningProxy",
		"TestTrafficAfterRemoval",
		"TestTrafficOwners",
		"TestTrafficInterfaces",
		"TestTrafficStrictIstio",
		"TestNoPayloadBypassesTheProxyAfterConntrackFlush",
		"TestTenThousandPrefixesOfEachFamilyAreOneTransaction",
	}},
	{pkg: "nft/trace", nft: true, tests: []string{
		"TestSessionSeesFirstPacketsFromTheFirstChainOn",
		"TestFilterSelectsByPort",
		"TestOneSessionAtATime",
		"TestLeftoverTableWithoutOwnerIsRemoved",
		"TestTheNextSessionRemovesTheTableOfAKilledSession",
	}},
	{pkg: "compat", legacy: true, tests: []string{
		"TestThisKernelSupportsIPTablesLegacy",
		"TestProbeFindsMissingKernelFeatures",
		"TestKernelListsEncodedRules",
		"TestIptablesPrintsEncodedRules",
		"TestKernelAcceptsTheOldestRevisions",
		"TestLegacyWithoutIPv6LeavesNoIPv6Rules",
		"TestLegacyCreatesOnlyTheTablesThatItNeeds",
		"TestLegacyKeepsForeignRulesAndCounters",
		"TestLegacyJumpsPrecedeForeignRules",
		"TestLegacyFindsAndRepairsDrift",
		"TestLegacyUndoesAllTablesWhenTheLastOneIsRejected",
		"TestRemoveIstioCreatesNoTable",
		"TestAutoSelectsLegacyIfNFTIsMissing",
		"TestLegacyDeliversCallsToTheExpectedListeners",
		"TestLegacyDeliversCallsInAnotherUserNamespace",
	}},
	{pkg: "nft", nft: true, legacy: true, tests: []string{
		"TestHooksAreListedInTheKernelsOrder",
	}},
	{pkg: "compat", nft: true, legacy: true, tests: []string{
		"TestNoRulesAreAppliedIfRoutesFail",
		"TestOrderOfChainsAtConntracksPriority",
		"TestBackendsReadBackAppliedRules",
		"TestApplyMovesRulesToTheOtherBackend",
		"TestFailedBackendChangeChangesNothing",
		"TestOneBackendDoesNotDisturbTheOther",
		"TestChainsHaveTheKernelsOrder",
		"TestLiveTablesAreAttributedToTheirPrograms",
		"TestReadLiveCreatesNothing",
	}},
}

// runsIn reports whether the machine has the backends that the tests need.
func (t testSet) runsIn(s ModuleSet) bool { return (!t.nft || s.NFT) && (!t.legacy || s.Legacy) }

// testsOf returns the tests of a package that run with the modules.
func testsOf(pkg string, s ModuleSet) []string {
	var tests []string
	for _, set := range testSets {
		if set.pkg == pkg && set.runsIn(s) {
			tests = append(tests, set.tests...)
		}
	}
	return tests
}

// pattern returns the regular expression for go test's -run that selects exactly these tests.
func pattern(tests []string) string { return fmt.Sprintf("^(%s)$", strings.Join(tests, "|")) }
