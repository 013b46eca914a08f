/* rdma/fabric.h of the stand-in image. */
#ifndef FABRIC_H
#define FABRIC_H
#ifdef __cplusplus
extern "C" {
#endif
unsigned fi_version(void);
#ifdef __cplusplus
}
#endif
#endif
