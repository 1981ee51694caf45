// A transfer by libudt: `peer ADDRESS BYTES` waits there and prints the seconds from its caller's coming to
// the last byte, `peer ADDRESS BYTES send` calls and sends.
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <udt/udt.h>
#include <vector>

static int failed(const char *what) {
    std::fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        return 2;
    }
    const long long bytes = std::atoll(argv[2]);
    std::vector<char> piece(1 << 20);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(9000);
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
        return 2;
    }
    auto *const named = reinterpret_cast<sockaddr *>(&address);
    UDT::startup();
    const UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
    char end = 0;
    if (argc > 3) {
        if (UDT::connect(socket, named, sizeof address) == UDT::ERROR) {
            return failed("connect");
        }
        for (long long sent = 0; sent < bytes;) {
            const int most = static_cast<int>(std::min<long long>(piece.size(), bytes - sent));
            const int taken = UDT::send(socket, piece.data(), most, 0);
            if (taken == UDT::ERROR) {
                return failed("send");
            }
            sent += taken;
        }
        // The end that has all data says so.
        UDT::recv(socket, &end, 1, 0);
    } else {
        if (UDT::bind(socket, named, sizeof address) == UDT::ERROR ||
            UDT::listen(socket, 1) == UDT::ERROR) {
            return failed("listen");
        }
        int size = sizeof address;
        const UDTSOCKET caller = UDT::accept(socket, named, &size);
        const auto start = std::chrono::steady_clock::now();
        for (long long came = 0; came < bytes;) {
            const int got = UDT::recv(caller, piece.data(), static_cast<int>(piece.size()), 0);
            if (got == UDT::ERROR) {
                return failed("recv");
            }
            came += got;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        std::printf("%.3f\n", took.count());
        UDT::send(caller, &end, 1, 0);
        UDT::close(caller);
    }
    UDT::close(socket);
    UDT::cleanup();
    return 0;
}
