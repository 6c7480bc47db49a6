package sa

import (
	"cmp"
	"slices"
)

// Rate is a rate as records and ports have it (enum ib_rate); 6 bits. Its
// numbers aren't in the order of the speeds: compare with Rate.Compare.
type Rate uint8

// The rates, by their names' Gbit/s. OpenSM 3.3.24 has 800 and 1200 Gbit/s too.
const (
	Rate2_5Gbps Rate = 2
	Rate10Gbps  Rate = 3
	Rate30Gbps  Rate = 4
	Rate5Gbps   Rate = 5
	Rate20Gbps  Rate = 6
	Rate40Gbps  Rate = 7
	Rate60Gbps  Rate = 8
	Rate80Gbps  Rate = 9
	Rate120Gbps Rate = 10
	Rate14Gbps  Rate = 11
	Rate56Gbps  Rate = 12
	Rate112Gbps Rate = 13
	Rate168Gbps Rate = 14
	Rate25Gbps  Rate = 15
	Rate100Gbps Rate = 16
	Rate200Gbps Rate = 17
	Rate300Gbps Rate = 18
	Rate28Gbps  Rate = 19
	Rate50Gbps  Rate = 20
	Rate400Gbps Rate = 21
	Rate600Gbps Rate = 22
)

// slowestFirst are the rates in OpenSM's order, that of the data they carry: 30
// Gbit/s (12X SDR, coded 8b/10b) is slower than 25 (1X EDR, coded 64b/66b).
func slowestFirst() []Rate {
	return []Rate{
		Rate2_5Gbps, Rate5Gbps, Rate10Gbps, Rate14Gbps, Rate20Gbps, Rate30Gbps,
		Rate25Gbps, Rate28Gbps, Rate40Gbps, Rate60Gbps, Rate50Gbps, Rate56Gbps,
		Rate80Gbps, Rate120Gbps, Rate100Gbps, Rate112Gbps, Rate168Gbps,
		Rate200Gbps, Rate300Gbps, Rate400Gbps, Rate600Gbps,
	}
}

// Compare is negative where r is slower than o, zero where they are the same,
// else positive. A number that is no rate is slower than every rate.
func (r Rate) Compare(o Rate) int {
	rates := slowestFirst()
	return cmp.Compare(slices.Index(rates, r), slices.Index(rates, o))
}

func (r Rate) valid() bool { return r >= Rate2_5Gbps && r <= Rate600Gbps }

// slower is the next slower rate, 0 below the slowest one.
func (r Rate) slower() Rate {
	rates := slowestFirst()
	if i := slices.Index(rates, r); i > 0 {
		return rates[i-1]
	}
	return 0
}
