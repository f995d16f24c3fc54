package runner

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nightshift-ci/nightshift/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Init(Helpers())
	goleak.VerifyTestMain(m)
}
