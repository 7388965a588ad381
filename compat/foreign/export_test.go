package foreign

// WithoutFilters is exported for tests.
var WithoutFilters = withoutFilters
