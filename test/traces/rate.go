package traces

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"
)

// ServeGenWindow is how long each of ServeGenRate's values holds.
const ServeGenWindow = 10 * time.Minute

// ServeGenRate is the request rate of ServeGen's m-large workload, all clients together: requests/s, one value for each
// ServeGenWindow of 14 days. It has no requests of its own, so Open does not know it.
func ServeGenRate() (rates []float64, err error) {
	file, err := data.Open("data/servegen_m_large_rate.csv.gz")
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	defer func() { _ = file.Close() }()
	unzip, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	rows, err := csv.NewReader(unzip).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	for i, row := range rows[1:] {
		at, err := strconv.Atoi(row[0])
		if err != nil || time.Duration(at)*time.Second != time.Duration(i)*ServeGenWindow {
			return nil, fmt.Errorf("row %d begins at %q", i+1, row[0])
		}
		rate, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", i+1, err)
		}
		rates = append(rates, rate)
	}
	return rates, nil
}
