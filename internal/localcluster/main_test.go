package localcluster

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // what isn't given a log, such as envtest
	logrus.SetLevel(logrus.WarnLevel)
	// apimachinery's, see stop in hack/demo.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}
