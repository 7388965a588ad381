package kernels

import (
	"fmt"
	"strings"
)

// testPackages are the packages, below the project's folder, whose tests run.
var testPackages = []string{"nft", "compat"}

// A testSet is a number of tests of a package.
type testSet struct {
	pkg string
	// nft and legacy tell which engines the tests need.
	nft, legacy bool
	tests       []string
}

// Of both packages those tests run of which the result is the kernel's: traffic, what it takes and
// refuses, what it shows. Left out is what is decided in memory, what asks for a thousand
// repetitions, and what compares with a program whose own age matters.
var testSets = []testSet{
	{pkg: "nft", nft: true, tests: []string{
		"TestThisKernelSupportsEverything",
		"TestAProbeLeavesNoTrace",
		"TestIntervalsOfEveryKindAreReadAsTheyWereApplied",
		"TestAChangeOfSomePrefixesUpdatesTheSetInPlace",
		"TestAReplacementKeepsTheChainsThatStayAttached",
		"TestARefusalNamesWhatWasRefusedAndChangesNothing",
		"TestANamespaceWithoutIPv6",
		"TestANamespaceOfAnotherUserNamespace",
		"TestWithoutNetAdminNothingIsPermitted",
		"TestApplyMendsRoutesBesideEqualRules",
		"TestIstiosTablesAreKnownToTheModel",
		"TestTablesOfOthersStayAsTheyAre",
		"TestKeepEstablishedLeavesOlderConnectionsAlone",
		"TestTrafficVerdicts",
		"TestTrafficDNS",
		"TestTrafficDropInvalid",
		"TestTrafficInUserNamespace",
		"TestTrafficWithoutListeningProxy",
		"TestTrafficAfterRemoval",
		"TestTrafficOwners",
		"TestTrafficInterfaces",
		"TestTrafficStrictIstio",
		"TestConntrackFlushLetsNoPayloadPassTheProxy",
		"TestTenThousandPrefixesOfEachFamilyAreOneTransaction",
	}},
	{pkg: "compat", legacy: true, tests: []string{
		"TestThisKernelHasAllOfIPTablesLegacy",
		"TestProbeSaysWhatTheKernelLacks",
		"TestKernelHasWhatIsEncoded",
		"TestRealProgramPrints",
		"TestKernelTakesTheOldestRevisions",
		"TestLegacyWithoutIPv6LeavesNothingThere",
		"TestLegacyMakesNoMoreTablesThanItNeeds",
		"TestLegacyKeepsOthersRulesAndCounters",
		"TestLegacyRunsFirst",
		"TestLegacyFindsAndRepairsDrift",
		"TestLegacyUndoesEverythingWhenTheLastTableIsRefused",
		"TestRemoveIstioCreatesNoTable",
		"TestWithoutNFTAutoIsLegacy",
		"TestLegacyTraffic",
		"TestLegacyTrafficInAnotherUserNamespace",
	}},
	{pkg: "nft", nft: true, legacy: true, tests: []string{
		"TestHooksAreListedInTheKernelsOrder",
	}},
	{pkg: "compat", nft: true, legacy: true, tests: []string{
		"TestNothingIsAppliedWithoutItsRoutes",
		"TestBackendsHoldWhatTheyApply",
		"TestRulesMoveToTheOtherBackend",
		"TestAMoveThatFailsChangesNothing",
		"TestOneBackendDoesNotDisturbTheOther",
		"TestTheOrderOfChainsIsThatOfTheKernel",
		"TestLivePartsAreThoseOfTheirPrograms",
		"TestReadLiveMakesNothing",
	}},
}

// in reports whether the tests run where only these engines are.
func (t testSet) in(s Shape) bool { return (!t.nft || s.NFT) && (!t.legacy || s.Legacy) }

// testsOf lists the tests of a package that run in a shape.
func testsOf(pkg string, s Shape) []string {
	var list []string
	for _, set := range testSets {
		if set.pkg == pkg && set.in(s) {
			list = append(list, set.tests...)
		}
	}
	return list
}

// pattern selects exactly these tests, in the language of go test's -run.
func pattern(tests []string) string { return fmt.Sprintf("^(%s)$", strings.Join(tests, "|")) }
