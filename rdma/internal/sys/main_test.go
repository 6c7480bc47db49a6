package sys

import (
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
